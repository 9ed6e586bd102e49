package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// askView shows an answer as it comes: its text on standard output, what the tools do on standard error.
type askView struct {
	notes
	out    io.Writer
	silent bool
	all    strings.Builder // the whole text
	open   bool            // the last character shown was not a line end
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

func (v *askView) started(b block) {
	if b.str("type") == "text" {
		v.text(b.str("text"))
	}
}

func (v *askView) finished(b block) {
	switch b.str("type") {
	case "server_tool_use", "tool_use":
		v.endText()
		v.line("%s", toolLine(b))
	case "text":
		v.endText()
	default:
		if strings.HasSuffix(b.str("type"), "_tool_result") {
			v.endText()
			v.line("%s", resultLine(b))
		}
	}
}

// shown is how much of a command or an output a line shows.
const shown = 160

// toolLine says what a tool is asked to do.
func toolLine(b block) string {
	raw, err := json.Marshal(b["input"])
	if err != nil {
		return b.str("name")
	}
	var in struct {
		Command string `json:"command"`
		Path    string `json:"path"`
		Code    string `json:"code"`
	}
	_ = json.Unmarshal(raw, &in) // an input of another shape shows as the bare name
	switch b.str("name") {
	case "bash_code_execution":
		return "$ " + firstLine(in.Command)
	case "text_editor_code_execution":
		return in.Command + " " + printable(in.Path)
	case "code_execution":
		return "python: " + firstLine(in.Code)
	default:
		return b.str("name")
	}
}

// resultLine says how it ended, with the last line of what it complained about.
func resultLine(b block) string {
	result, _ := b["content"].(map[string]any)
	r := block(result)
	if code := r.str("error_code"); code != "" {
		return strings.TrimSpace("  failed: " + code + " " + firstLine(r.str("error_message")))
	}
	code, ok := r["return_code"].(json.Number)
	if !ok || code == "0" {
		return "  ok"
	}
	lines := strings.Split(strings.TrimSpace(r.str("stderr")), "\n")
	return fmt.Sprintf("  exit %s %s", code, firstLine(lines[len(lines)-1]))
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
