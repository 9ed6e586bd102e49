package script

import "strings"

// part is a stretch of a message: text, or one fenced block.
type part struct {
	fenced bool
	info   string
	body   string // without the final line end
	lines  int    // lines of body
	raw    string // as written
}

// split cuts a message at its fences as CommonMark does for fences outside
// lists and quotes: three or more backticks or tildes, indented by at most three
// spaces, closed by at least as many; a fence that is not closed ends with the
// message.
func split(s string) []part {
	var parts []part
	lines := strings.Split(strings.ReplaceAll(s, "\r\n", "\n"), "\n")
	var text []string
	flush := func() {
		if t := strings.Trim(strings.Join(text, "\n"), "\n"); strings.TrimSpace(t) != "" {
			parts = append(parts, part{raw: t})
		}
		text = nil
	}
	for i := 0; i < len(lines); i++ {
		open, ok := opening(lines[i])
		if !ok {
			text = append(text, lines[i])
			continue
		}
		flush()
		end := i + 1
		var body []string
		for ; end < len(lines) && !open.closedBy(lines[end]); end++ {
			body = append(body, open.unindent(lines[end]))
		}
		raw := lines[i:min(end+1, len(lines))]
		parts = append(parts, part{fenced: true, info: open.info, body: strings.Join(body, "\n"), lines: len(body), raw: strings.Join(raw, "\n")})
		i = end
	}
	flush()
	return parts
}

type fence struct {
	char   byte
	size   int
	indent int
	info   string
}

func opening(line string) (fence, bool) {
	rest := strings.TrimLeft(line, " ")
	f := fence{indent: len(line) - len(rest)}
	if f.indent > 3 || rest == "" || (rest[0] != '`' && rest[0] != '~') {
		return f, false
	}
	f.char = rest[0]
	f.size = len(rest) - len(strings.TrimLeft(rest, string(f.char)))
	f.info = strings.TrimSpace(rest[f.size:])
	if f.size < 3 || (f.char == '`' && strings.Contains(f.info, "`")) {
		return f, false
	}
	return f, true
}

func (f fence) closedBy(line string) bool {
	c, ok := opening(line)
	return ok && c.char == f.char && c.size >= f.size && c.info == ""
}

// unindent takes off the indentation that the opening fence had.
func (f fence) unindent(line string) string {
	for i := 0; i < f.indent && strings.HasPrefix(line, " "); i++ {
		line = line[1:]
	}
	return line
}
