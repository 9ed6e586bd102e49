package wire

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxValues bounds the values of one JSON body: a tree of them takes many times the memory of the text. No model reads as
// many, since each is a token at least.
const MaxValues = 500_000

// maxDepth bounds nesting. Real requests stay under twenty.
const maxDepth = 512

// CheckJSON checks a body that is passed on unchanged, where a parser further on might read it in
// another way than we did: one JSON value and nothing after it, valid UTF-8, no lone surrogate escape, no
// member twice in an object (names compared after decoding), bounded depth and number of values. The error is a *Error that
// names the path, as messages.2.content.0.
func CheckJSON(b []byte) error {
	c := jsonChecker{b: b}
	c.space()
	if c.i == len(b) {
		return Invalid("body: a JSON value is missing.")
	}
	if bytes.HasPrefix(b, []byte("\xef\xbb\xbf")) {
		return Invalid("body: begins with a byte order mark; send plain UTF-8.")
	}
	if err := c.value(0); err != nil {
		return err
	}
	c.space()
	if c.i != len(b) {
		return Invalid("body: there is data after the JSON value, at byte %d.", c.i)
	}
	return nil
}

type jsonChecker struct {
	b      []byte
	i      int
	values int
	path   []string
}

func (c *jsonChecker) fail(format string, args ...any) error {
	return Invalid("%s: %s.", pathOr(JoinPath(c.path), "body"), fmt.Sprintf(format, args...))
}

// JoinPath writes the path of a value as messages name it. It keeps a hostile path from making a huge or unprintable
// message.
func JoinPath(parts []string) string {
	const most = 40
	if len(parts) > most {
		parts = append(append([]string{}, parts[:most]...), "…")
	}
	out := make([]string, len(parts))
	for i, p := range parts {
		if len(p) > 64 {
			p = p[:64] + "…"
		}
		out[i] = strings.Trim(strconv.QuoteToGraphic(strings.ToValidUTF8(p, "\uFFFD")), `"`)
	}
	return strings.Join(out, ".")
}

func (c *jsonChecker) space() {
	for c.i < len(c.b) {
		switch c.b[c.i] {
		case ' ', '\t', '\n', '\r':
			c.i++
		default:
			return
		}
	}
}

func (c *jsonChecker) value(depth int) error {
	if depth > maxDepth {
		return c.fail("nested deeper than %d levels", maxDepth)
	}
	if c.values++; c.values > MaxValues {
		c.path = nil // where the limit was passed says nothing about what to change
		return c.fail("more than %d JSON values", MaxValues)
	}
	if c.i >= len(c.b) {
		return c.fail("the JSON ends early")
	}
	switch ch := c.b[c.i]; {
	case ch == '{':
		return c.object(depth)
	case ch == '[':
		return c.array(depth)
	case ch == '"':
		_, err := c.str(false)
		return err
	case ch == '-' || (ch >= '0' && ch <= '9'):
		return c.number()
	default:
		for _, word := range []string{"true", "false", "null"} {
			if bytes.HasPrefix(c.b[c.i:], []byte(word)) {
				c.i += len(word)
				return nil
			}
		}
		return c.fail("no JSON value at byte %d", c.i)
	}
}

func (c *jsonChecker) object(depth int) error {
	c.i++
	c.space()
	if c.i < len(c.b) && c.b[c.i] == '}' {
		c.i++
		return nil
	}
	var seen names
	for {
		c.space()
		if c.i >= len(c.b) {
			return c.fail("the JSON ends early")
		}
		if c.b[c.i] != '"' {
			return c.fail("a member name was expected at byte %d", c.i)
		}
		name, err := c.str(true)
		if err != nil {
			return err
		}
		if !seen.add(name) {
			return c.fail("member %s is there twice", strconv.QuoteToGraphic(name))
		}
		c.space()
		if c.i >= len(c.b) || c.b[c.i] != ':' {
			return c.fail("a colon was expected at byte %d", c.i)
		}
		c.i++
		c.space()
		c.path = append(c.path, name)
		if err := c.value(depth + 1); err != nil {
			return err
		}
		c.path = c.path[:len(c.path)-1]
		more, err := c.next('}')
		if err != nil || !more {
			return err
		}
	}
}

func (c *jsonChecker) array(depth int) error {
	c.i++
	c.space()
	if c.i < len(c.b) && c.b[c.i] == ']' {
		c.i++
		return nil
	}
	for n := 0; ; n++ {
		c.space()
		c.path = append(c.path, strconv.Itoa(n))
		if err := c.value(depth + 1); err != nil {
			return err
		}
		c.path = c.path[:len(c.path)-1]
		more, err := c.next(']')
		if err != nil || !more {
			return err
		}
	}
}

// next steps over a comma (true) or the closing character (false).
func (c *jsonChecker) next(closing byte) (bool, error) {
	c.space()
	if c.i >= len(c.b) {
		return false, c.fail("the JSON ends early")
	}
	switch c.b[c.i] {
	case ',':
		c.i++
		return true, nil
	case closing:
		c.i++
		return false, nil
	}
	return false, c.fail("a comma or %q was expected at byte %d", closing, c.i)
}

// str steps over a string. The decoded text is built only when asked for, since most strings are long.
func (c *jsonChecker) str(decode bool) (string, error) {
	c.i++
	start, ascii := c.i, true
	var out []byte
	for {
		if c.i >= len(c.b) {
			return "", c.fail("a string does not end")
		}
		switch ch := c.b[c.i]; {
		case ch == '"':
			raw := c.b[start:c.i]
			c.i++
			if !ascii && !utf8.Valid(raw) {
				return "", c.fail("a string is not valid UTF-8")
			}
			if !decode {
				return "", nil
			}
			return string(append(out, raw...)), nil
		case ch < 0x20:
			return "", c.fail("a control character stands unescaped in a string, at byte %d", c.i)
		case ch == '\\':
			raw := c.b[start:c.i]
			if !ascii && !utf8.Valid(raw) {
				return "", c.fail("a string is not valid UTF-8")
			}
			r, err := c.escape()
			if err != nil {
				return "", err
			}
			if decode {
				out = utf8.AppendRune(append(out, raw...), r)
			}
			start, ascii = c.i, true
		default:
			if ch >= utf8.RuneSelf {
				ascii = false
			}
			c.i++
		}
	}
}

var simpleEscapes = map[byte]rune{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

func (c *jsonChecker) escape() (rune, error) {
	if c.i+1 >= len(c.b) {
		return 0, c.fail("a string does not end")
	}
	if r, ok := simpleEscapes[c.b[c.i+1]]; ok {
		c.i += 2
		return r, nil
	}
	r, ok := c.hex(c.i)
	if !ok {
		return 0, c.fail("a string holds a bad escape at byte %d", c.i)
	}
	c.i += 6
	if !utf16.IsSurrogate(r) {
		return r, nil
	}
	low, ok := c.hex(c.i)
	if full := utf16.DecodeRune(r, low); ok && full != utf8.RuneError {
		c.i += 6
		return full, nil
	}
	return 0, c.fail("a string holds half a surrogate pair at byte %d", c.i-6)
}

// hex reads the \uXXXX at position i.
func (c *jsonChecker) hex(i int) (rune, bool) {
	if i+6 > len(c.b) || c.b[i] != '\\' || c.b[i+1] != 'u' {
		return 0, false
	}
	var r rune
	for _, ch := range c.b[i+2 : i+6] {
		switch {
		case ch >= '0' && ch <= '9':
			ch -= '0'
		case ch >= 'a' && ch <= 'f':
			ch -= 'a' - 10
		case ch >= 'A' && ch <= 'F':
			ch -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(ch)
	}
	return r, true
}

func (c *jsonChecker) number() error {
	start := c.i
	if c.b[c.i] == '-' {
		c.i++
	}
	ok := true
	if c.i < len(c.b) && c.b[c.i] == '0' {
		c.i++
	} else {
		ok = c.digits()
	}
	if ok && c.i < len(c.b) && c.b[c.i] == '.' {
		c.i++
		ok = c.digits()
	}
	if ok && c.i < len(c.b) && (c.b[c.i] == 'e' || c.b[c.i] == 'E') {
		c.i++
		if c.i < len(c.b) && (c.b[c.i] == '+' || c.b[c.i] == '-') {
			c.i++
		}
		ok = c.digits()
	}
	if !ok {
		return c.fail("a number is malformed at byte %d", start)
	}
	return nil
}

func (c *jsonChecker) digits() bool {
	start := c.i
	for c.i < len(c.b) && c.b[c.i] >= '0' && c.b[c.i] <= '9' {
		c.i++
	}
	return c.i > start
}

// names is a set of member names: a list while small, then a map, so that a hostile object with a
// million members is still checked in linear time.
type names struct {
	list []string
	set  map[string]struct{}
}

func (n *names) add(s string) bool {
	if n.set != nil {
		if _, ok := n.set[s]; ok {
			return false
		}
		n.set[s] = struct{}{}
		return true
	}
	if slices.Contains(n.list, s) {
		return false
	}
	n.list = append(n.list, s)
	if len(n.list) > 16 {
		n.set = make(map[string]struct{}, 64)
		for _, have := range n.list {
			n.set[have] = struct{}{}
		}
	}
	return true
}
