package codeexec

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxCharacters is what is kept of each of stdout and stderr.
const MaxCharacters = 100_000

// noteRoom is left free of output so that the lines added at the end (a timeout,
// files that were not exported) fit.
const noteRoom = 4_000

// decode turns output bytes into text: NUL and every byte that is no UTF-8
// become U+FFFD, so that a database and every JSON parser can take it. It works
// on the whole stream, so no character is cut by a read.
func decode(b []byte) string {
	return strings.Map(func(r rune) rune {
		if r == 0 {
			return utf8.RuneError
		}
		return r
	}, string(b))
}

// capture collects one output stream; the guest bounds how much arrives.
type capture struct{ buf bytes.Buffer }

func (c *capture) Write(p []byte) (int, error) { return c.buf.Write(p) }

// text returns what is kept. dropped is how many bytes the guest left out, in
// the place of which it put a line of its own.
func (c *capture) text(dropped int64) string { return clip(c.buf.Bytes(), dropped) }

// clip keeps the first 70 % and the last 30 % of too long an output with a line
// between them that counts the bytes left out.
func clip(b []byte, dropped int64) string {
	if len(b) <= MaxCharacters-noteRoom {
		return decode(b)
	}
	if n := utf8.RuneCount(b); n <= MaxCharacters-noteRoom {
		return decode(b)
	}
	head := prefix(b, (MaxCharacters-noteRoom)*7/10)
	tail := suffix(b[len(head):], (MaxCharacters-noteRoom)*3/10)
	middle := b[len(head) : len(b)-len(tail)]
	out := int64(len(middle))
	if dropped > 0 {
		if marker := fmt.Appendf(nil, "\n... %d bytes dropped ...\n", dropped); bytes.Contains(middle, marker) {
			out += dropped - int64(len(marker))
		}
	}
	return decode(head) + fmt.Sprintf("\n... %d bytes dropped ...\n", out) + decode(tail)
}

// prefix returns the first n characters.
func prefix(b []byte, n int) []byte {
	i := 0
	for ; n > 0 && i < len(b); n-- {
		_, size := utf8.DecodeRune(b[i:])
		i += size
	}
	return b[:i]
}

// suffix returns the last n characters.
func suffix(b []byte, n int) []byte {
	i := len(b)
	for ; n > 0 && i > 0; n-- {
		_, size := utf8.DecodeLastRune(b[:i])
		i -= size
	}
	return b[i:]
}

// withNotes appends lines of ours to what clip gave. The last line, if there is
// one, always stands; of the notes before it as many as MaxCharacters allows.
func withNotes(s string, notes []string, last string) string {
	const more = "and %d more notes"
	room := MaxCharacters - utf8.RuneCountInString(s) - utf8.RuneCountInString(last) - len(more) - 12
	for i, n := range notes {
		if room -= utf8.RuneCountInString(n) + 1; room < 0 {
			s = withLine(s, fmt.Sprintf(more, len(notes)-i))
			break
		}
		s = withLine(s, n)
	}
	return withLine(s, last)
}

// withLine appends a line of ours to a stream, on a line of its own.
func withLine(s, line string) string {
	if line == "" {
		return s
	}
	if s != "" && !strings.HasSuffix(s, "\n") {
		s += "\n"
	}
	return s + line + "\n"
}
