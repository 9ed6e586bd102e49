package wire

import (
	"net/url"
	"strings"
	"unicode/utf8"
)

// disposition is a Content-Disposition header of a multipart part, read the way clients write it, which
// is no one grammar: Go escapes quotes with a backslash, browsers and Node write %22, some send
// filename*=UTF-8”…, and nearly all send raw UTF-8. mime.ParseMediaType refuses or alters some of that.
type disposition struct {
	name     string
	filename string
}

func parseDisposition(header string) (disposition, error) {
	var d disposition
	kind, rest, _ := strings.Cut(header, ";")
	if !strings.EqualFold(strings.TrimSpace(kind), "form-data") {
		return d, Invalid("body: a part has no Content-Disposition: form-data header with a name.")
	}
	extended := ""
	named := false
	for rest = strings.TrimSpace(rest); rest != ""; {
		key, value, more, err := nextParam(rest)
		if err != nil {
			return d, err
		}
		rest = more
		switch strings.ToLower(key) {
		case "name":
			d.name, named = undoPercent(value), true
		case "filename":
			d.filename = undoPercent(value)
		case "filename*":
			if extended, err = decodeExtended(value); err != nil {
				return d, err
			}
		}
	}
	if !named {
		return d, Invalid("body: a part's Content-Disposition header has no name.")
	}
	if extended != "" {
		d.filename = extended
	}
	return d, nil
}

// nextParam reads key=value or key="value" and what follows the semicolon after it.
func nextParam(s string) (key, value, rest string, err error) {
	key, s, ok := strings.Cut(s, "=")
	key = strings.TrimSpace(key)
	if !ok || key == "" || strings.ContainsAny(key, "\"; ") {
		return "", "", "", Invalid("body: a part's Content-Disposition header is malformed.")
	}
	s = strings.TrimLeft(s, " \t")
	if strings.HasPrefix(s, `"`) {
		value, s, ok = quoted(s[1:])
		if !ok {
			return "", "", "", Invalid("body: a part's Content-Disposition header has a quote that does not end.")
		}
	} else {
		i := strings.IndexByte(s, ';')
		if i < 0 {
			i = len(s)
		}
		value, s = strings.TrimSpace(s[:i]), s[i:]
	}
	s = strings.TrimLeft(s, " \t")
	if s != "" {
		if s[0] != ';' {
			return "", "", "", Invalid("body: a part's Content-Disposition header is malformed.")
		}
		s = strings.TrimLeft(s[1:], " \t")
	}
	return key, value, s, nil
}

// quoted reads up to the closing quote. A backslash escapes only a quote or a backslash: browsers send
// C:\dir\x with single ones.
func quoted(s string) (value, rest string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '"':
			return b.String(), s[i+1:], true
		case s[i] == '\\' && i+1 < len(s) && (s[i+1] == '"' || s[i+1] == '\\'):
			i++
			b.WriteByte(s[i])
		default:
			b.WriteByte(s[i])
		}
	}
	return "", "", false
}

// undoPercent undoes the three escapes the WHATWG form encoding makes, and no others: a name may hold %41.
func undoPercent(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	return strings.NewReplacer("%22", `"`, "%0D", "\r", "%0d", "\r", "%0A", "\n", "%0a", "\n").Replace(s)
}

// decodeExtended decodes charset'language'percent-encoded of RFC 8187.
func decodeExtended(s string) (string, error) {
	bad := Invalid("file: the filename* parameter is malformed; write UTF-8'' and the percent-encoded name.")
	charset, rest, ok := strings.Cut(s, "'")
	_, text, ok2 := strings.Cut(rest, "'")
	if !ok || !ok2 {
		return "", bad
	}
	raw, err := url.PathUnescape(text)
	if err != nil {
		return "", bad
	}
	switch strings.ToLower(charset) {
	case "utf-8":
		if !utf8.ValidString(raw) {
			return "", bad
		}
		return raw, nil
	case "iso-8859-1":
		r := make([]rune, len(raw))
		for i := range len(raw) {
			r[i] = rune(raw[i])
		}
		return string(r), nil
	}
	return "", bad
}
