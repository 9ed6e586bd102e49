package codeexec

import (
	"slices"
	"strings"
)

// contextLines stand before and after the change in a hunk.
const contextLines = 3

// hunk is one unified-diff hunk: the four numbers of its header and its lines
// with their prefix characters.
type hunk struct {
	oldStart, oldLines, newStart, newLines int
	lines                                  []string
}

// diff returns the single hunk from the first to the last changed line.
func diff(before, after string) hunk {
	a, b := splitLines(before), splitLines(after)
	top := 0
	for top < len(a) && top < len(b) && a[top] == b[top] {
		top++
	}
	bottom := 0
	for bottom < len(a)-top && bottom < len(b)-top && a[len(a)-1-bottom] == b[len(b)-1-bottom] {
		bottom++
	}
	from := max(top-contextLines, 0)
	keep := min(bottom, contextLines)
	h := hunk{
		oldStart: from + 1, oldLines: len(a) - bottom + keep - from,
		newStart: from + 1, newLines: len(b) - bottom + keep - from,
	}
	// A side without lines is named by the line before it, as diff does.
	if h.oldLines == 0 {
		h.oldStart--
	}
	if h.newLines == 0 {
		h.newStart--
	}
	h.add(' ', a[from:top])
	h.change(a[top:len(a)-bottom], b[top:len(b)-bottom])
	h.add(' ', a[len(a)-bottom:len(a)-bottom+keep])
	return h
}

func (h *hunk) add(prefix byte, lines []string) {
	for _, l := range lines {
		h.lines = append(h.lines, string(prefix)+l)
	}
}

// maxTable bounds the work of finding equal lines inside a change.
const maxTable = 1 << 20

// change writes the changed lines, with lines that both sides have kept as
// context when the change is small enough to look for them.
func (h *hunk) change(a, b []string) {
	if len(a) == 0 || len(b) == 0 || (len(a)+1)*(len(b)+1) > maxTable {
		h.add('-', a)
		h.add('+', b)
		return
	}
	t := common(a, b)
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			h.add(' ', a[i:i+1])
			i, j = i+1, j+1
		case i < len(a) && (j == len(b) || t[i+1][j] >= t[i][j+1]):
			h.add('-', a[i:i+1])
			i++
		default:
			h.add('+', b[j:j+1])
			j++
		}
	}
}

// common is the table of the longest common subsequences of the tails.
func common(a, b []string) [][]int32 {
	t := make([][]int32, len(a)+1)
	for i := range t {
		t[i] = make([]int32, len(b)+1)
	}
	for i, v := range slices.Backward(a) {
		for j := len(b) - 1; j >= 0; j-- {
			if v == b[j] {
				t[i][j] = t[i+1][j+1] + 1
			} else {
				t[i][j] = max(t[i+1][j], t[i][j+1])
			}
		}
	}
	return t
}

// splitLines cuts a text into lines; the end of the last line is not a line.
func splitLines(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(s, "\n"), "\n")
}
