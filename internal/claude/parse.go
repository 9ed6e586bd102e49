package claude

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/airlock-sandbox/airlock/internal/wire"
)

// MaxDepth is the deepest nesting of arrays and objects that Parse accepts.
const MaxDepth = 64

// Parse reads exactly one JSON value. The error is a *wire.Error whose message
// names the path of the fault, shortened where it is long.
func Parse(b []byte) (*Node, error) {
	if !utf8.Valid(b) {
		return nil, wire.Invalid("The body is not valid UTF-8.")
	}
	p := &parser{s: string(b)}
	p.space()
	if p.i == len(p.s) {
		return nil, wire.Invalid("The body is empty; a JSON value is required.")
	}
	n, err := p.value(0)
	if err != nil {
		return nil, err
	}
	p.space()
	if p.i != len(p.s) {
		return nil, wire.Invalid("The body has data after the JSON value.")
	}
	return n, nil
}

type parser struct {
	s      string
	i      int
	values int
	path   []string
}

func (p *parser) fail(format string, args ...any) error {
	msg := fmt.Sprintf(format, args...)
	if len(p.path) > 0 {
		return wire.Invalid("%s: %s", wire.JoinPath(p.path), msg)
	}
	return wire.Invalid("The body is not valid JSON: %s", msg)
}

func (p *parser) space() {
	for p.i < len(p.s) {
		switch p.s[p.i] {
		case ' ', '\t', '\n', '\r':
			p.i++
		default:
			return
		}
	}
}

func (p *parser) value(depth int) (*Node, error) {
	if depth > MaxDepth {
		return nil, p.fail("the nesting is deeper than %d.", MaxDepth)
	}
	if p.values++; p.values > wire.MaxValues {
		return nil, wire.Invalid("The body has more than %d JSON values.", wire.MaxValues)
	}
	if p.i == len(p.s) {
		return nil, p.fail("it ends early.")
	}
	switch c := p.s[p.i]; {
	case c == '{':
		return p.object(depth)
	case c == '[':
		return p.array(depth)
	case c == '"':
		lit, err := p.str()
		return &Node{Kind: String, lit: lit}, err
	case c == '-' || (c >= '0' && c <= '9'):
		return p.number()
	}
	for _, w := range []string{"null", "true", "false"} {
		if strings.HasPrefix(p.s[p.i:], w) {
			p.i += len(w)
			if w == "null" {
				return &Node{Kind: Null, lit: w}, nil
			}
			return &Node{Kind: Bool, lit: w}, nil
		}
	}
	return nil, p.fail("unexpected character at byte %d.", p.i)
}

func (p *parser) object(depth int) (*Node, error) {
	n := &Node{Kind: Object}
	var seen map[string]struct{}
	p.i++
	for first := true; ; first = false {
		p.space()
		if p.i < len(p.s) && p.s[p.i] == '}' && first {
			p.i++
			return n, nil
		}
		if p.i == len(p.s) || p.s[p.i] != '"' {
			return nil, p.fail("a member name is expected at byte %d.", p.i)
		}
		m, err := p.member(depth)
		if err != nil {
			return nil, err
		}
		// Small objects are searched, large ones get a set: a body of many
		// names must not cost quadratic time.
		if len(n.Members) == 16 {
			seen = make(map[string]struct{}, 64)
			for _, have := range n.Members {
				seen[have.Name] = struct{}{}
			}
		}
		if _, dup := seen[m.Name]; dup || (seen == nil && n.Get(m.Name) != nil) {
			p.path = append(p.path, m.Name)
			return nil, p.fail("the member appears twice.")
		}
		if seen != nil {
			seen[m.Name] = struct{}{}
		}
		n.Members = append(n.Members, m)
		p.space()
		if done, err := p.next('}'); done || err != nil {
			return n, err
		}
	}
}

func (p *parser) member(depth int) (Member, error) {
	lit, err := p.str()
	if err != nil {
		return Member{}, err
	}
	name, _ := unquote(lit)
	p.space()
	if p.i == len(p.s) || p.s[p.i] != ':' {
		return Member{}, p.fail("a colon is expected at byte %d.", p.i)
	}
	p.i++
	p.space()
	p.path = append(p.path, name)
	v, err := p.value(depth + 1)
	if err != nil {
		return Member{}, err
	}
	p.path = p.path[:len(p.path)-1]
	return Member{Name: name, lit: lit, Value: v}, nil
}

func (p *parser) array(depth int) (*Node, error) {
	n := &Node{Kind: Array}
	p.i++
	p.space()
	if p.i < len(p.s) && p.s[p.i] == ']' {
		p.i++
		return n, nil
	}
	for {
		p.space()
		p.path = append(p.path, strconv.Itoa(len(n.Items)))
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		p.path = p.path[:len(p.path)-1]
		n.Items = append(n.Items, v)
		p.space()
		if done, err := p.next(']'); done || err != nil {
			return n, err
		}
	}
}

// next consumes a comma or the closing character.
func (p *parser) next(closing byte) (done bool, err error) {
	if p.i == len(p.s) {
		return false, p.fail("it ends early.")
	}
	c := p.s[p.i]
	p.i++
	if c == ',' {
		return false, nil
	}
	if c == closing {
		return true, nil
	}
	return false, p.fail("a comma or %q is expected at byte %d.", string(closing), p.i-1)
}

func (p *parser) number() (*Node, error) {
	start := p.i
	if p.s[p.i] == '-' {
		p.i++
	}
	whole := p.digits()
	if whole == 0 || (whole > 1 && p.s[p.i-whole] == '0') {
		return nil, p.fail("malformed number at byte %d.", start)
	}
	if p.i < len(p.s) && p.s[p.i] == '.' {
		p.i++
		if p.digits() == 0 {
			return nil, p.fail("malformed number at byte %d.", start)
		}
	}
	if p.i < len(p.s) && (p.s[p.i] == 'e' || p.s[p.i] == 'E') {
		p.i++
		if p.i < len(p.s) && (p.s[p.i] == '+' || p.s[p.i] == '-') {
			p.i++
		}
		if p.digits() == 0 {
			return nil, p.fail("malformed number at byte %d.", start)
		}
	}
	return &Node{Kind: Number, lit: p.s[start:p.i]}, nil
}

func (p *parser) digits() int {
	start := p.i
	for p.i < len(p.s) && p.s[p.i] >= '0' && p.s[p.i] <= '9' {
		p.i++
	}
	return p.i - start
}

// str consumes a string and returns its literal, quotes included.
func (p *parser) str() (string, error) {
	start := p.i
	escaped := false
	for i := p.i + 1; i < len(p.s); i++ {
		switch c := p.s[i]; {
		case c == '"':
			p.i = i + 1
			lit := p.s[start:p.i]
			if escaped {
				if _, ok := unquote(lit); !ok {
					return "", p.fail("the string at byte %d has a bad escape.", start)
				}
			}
			return lit, nil
		case c == '\\':
			escaped = true
			i++
		case c < 0x20:
			return "", p.fail("the string at byte %d has a raw control character.", start)
		}
	}
	return "", p.fail("the string at byte %d does not end.", start)
}

// unquote decodes a string literal. A lone surrogate is refused: it has no
// UTF-8 form, and replacing it in silence would let two readers of one body see
// different text.
func unquote(lit string) (string, bool) {
	if len(lit) < 2 {
		return "", false
	}
	s := lit[1 : len(lit)-1]
	at := strings.IndexByte(s, '\\')
	if at < 0 {
		return s, true
	}
	out := make([]byte, 0, len(s))
	for at >= 0 {
		out = append(out, s[:at]...)
		s = s[at+1:]
		r, size, ok := unescape(s)
		if !ok {
			return "", false
		}
		out = utf8.AppendRune(out, r)
		s = s[size:]
		at = strings.IndexByte(s, '\\')
	}
	return string(append(out, s...)), true
}

// unescape decodes what follows a backslash.
func unescape(s string) (r rune, size int, ok bool) {
	if s == "" {
		return 0, 0, false
	}
	if i := strings.IndexByte(`"\/bfnrt`, s[0]); i >= 0 {
		return rune("\"\\/\b\f\n\r\t"[i]), 1, true
	}
	r, ok = hex4(s)
	if !ok || !utf16.IsSurrogate(r) {
		return r, 5, ok
	}
	if len(s) < 11 || s[5] != '\\' {
		return 0, 0, false
	}
	low, ok := hex4(s[6:])
	if !ok {
		return 0, 0, false
	}
	r = utf16.DecodeRune(r, low)
	return r, 11, r != utf8.RuneError
}

func hex4(s string) (rune, bool) {
	if len(s) < 5 || s[0] != 'u' {
		return 0, false
	}
	v, err := strconv.ParseUint(s[1:5], 16, 32)
	if err != nil {
		return 0, false
	}
	return rune(v), true
}

// Quote returns the JSON literal of s. It escapes only what JSON demands, and
// turns invalid UTF-8 into U+FFFD.
func Quote(s string) string {
	var b bytes.Buffer
	b.Grow(len(s) + 2)
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x20 || r == 0x2028 || r == 0x2029:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
