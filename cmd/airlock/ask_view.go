package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/airlock-sandbox/airlock/internal/claude"
)

// askView shows an answer as it comes: its text on standard output, what the tools do on standard error.
type askView struct {
	notes
	out    io.Writer
	silent bool
	all    strings.Builder // the whole text
	open   bool            // the last character shown was not a line end
	// ran counts the calls that ran, whatever came of them; refused those for which the server had no sandbox.
	ran, refused int
}

func (v *askView) text(s string) {
	v.all.WriteString(s)
	if v.silent || s == "" {
		return
	}
	_, _ = io.WriteString(v.out, printable(s)) // a reader that left is noticed when the command ends
	v.open = !strings.HasSuffix(s, "\n")
}

// endText ends the line that text left open, so that notes begin on their own.
func (v *askView) endText() {
	if v.open {
		_, _ = io.WriteString(v.out, "\n")
		v.open = false
	}
}

func (v *askView) started(b *claude.Node) {
	if b.Type() == "text" {
		v.text(b.Get("text").Str())
	}
}

func (v *askView) finished(b *claude.Node) {
	switch kind := b.Type(); {
	case kind == "text":
		v.endText()
	case kind == "server_tool_use" || kind == "tool_use":
		v.endText()
		v.line("%s", toolLine(b))
	case strings.HasSuffix(kind, "_tool_result"):
		v.endText()
		v.count(b.Get("content").Get("error_code").Str())
		v.line("%s", resultLine(b.Get("content")))
	}
}

func (v *askView) count(errorCode string) {
	switch errorCode {
	case "":
		v.ran++
	case "unavailable":
		v.refused++
	}
}

// shown is how much of a command or an output a line shows.
const shown = 160

// toolLine says what a tool is asked to do.
func toolLine(b *claude.Node) string {
	in := b.Get("input")
	switch name := b.Get("name").Str(); name {
	case "bash_code_execution":
		return "$ " + firstLine(in.Get("command").Str())
	case "text_editor_code_execution":
		return in.Get("command").Str() + " " + firstLine(in.Get("path").Str())
	case "code_execution":
		return "python: " + firstLine(in.Get("code").Str())
	default:
		return name
	}
}

// resultLine says how it ended, with the last line of what it complained about.
func resultLine(result *claude.Node) string {
	if code := result.Get("error_code").Str(); code != "" {
		return strings.TrimRight("  failed: "+code+" "+firstLine(result.Get("error_message").Str()), " ")
	}
	code, ok := result.Get("return_code").Int()
	if !ok || code == 0 {
		return "  ok"
	}
	lines := strings.Split(strings.TrimSpace(result.Get("stderr").Str()), "\n")
	return fmt.Sprintf("  exit %d %s", code, firstLine(lines[len(lines)-1]))
}

// firstLine is the first line with anything on it, cut to what a terminal shows well.
func firstLine(s string) string {
	s = strings.TrimSpace(s)
	line, rest, more := strings.Cut(s, "\n")
	line = printable(strings.TrimRight(line, "\r"))
	if r := []rune(line); len(r) > shown {
		return string(r[:shown]) + " …"
	}
	if more && strings.TrimSpace(rest) != "" {
		line += " …"
	}
	return line
}
