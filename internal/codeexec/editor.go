package codeexec

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/airlock-sandbox/airlock/internal/claude"
	"github.com/airlock-sandbox/airlock/internal/sandbox"
	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
)

// Bounds of the editor.
const (
	maxViewBytes  = 5 << 20 // of a file that is shown
	maxEditBytes  = 32 << 20
	maxListing    = 2_000
	listingLevels = 2
)

func (r *Runner) edit(ctx context.Context, p place, c Call) (*claude.Node, error) {
	command, bad := text(c.Input, "command")
	if bad != nil {
		return nil, bad
	}
	name, bad := text(c.Input, "path")
	if bad != nil {
		return nil, bad
	}
	name, bad = resolve(name)
	if bad != nil {
		return nil, bad
	}
	var do func(context.Context, files, string, *claude.Node) (*claude.Node, error)
	switch command {
	case "view":
		do = view
	case "create":
		do = create
	case "str_replace":
		do = replace
	default:
		return nil, invalid("command: view, create or str_replace is required.")
	}
	if command != "view" && strings.HasPrefix(name+"/", guest.OutputDir+"/") {
		return nil, invalid(noteOutputDir)
	}
	if note := p.Unsaved(ctx); note != "" { // what is shown or changed may be damaged
		return nil, &ToolError{Code: CodeUnavailable, Message: note + "; nothing was done: look at the files and call again"}
	}
	m, err := p.Machine(ctx)
	if err != nil {
		return nil, err
	}
	content, err := do(ctx, m, name, c.Input)
	if err != nil {
		return nil, fileError(name, err)
	}
	return block(c, content), nil
}

// fileError says which tool error a file operation ended with.
func fileError(name string, err error) error {
	var te *ToolError
	switch {
	case errors.As(err, &te):
		return te
	case errors.Is(err, guest.ErrNotExist):
		return &ToolError{Code: CodeFileNotFound, Message: "no such file: " + name, Err: err}
	case errors.Is(err, guest.ErrIsDir):
		return &ToolError{Code: CodeInvalidInput, Message: name + " is a folder.", Err: err}
	case errors.Is(err, guest.ErrPermission):
		return &ToolError{Code: CodeInvalidInput, Message: "permission denied: " + name + " cannot be read or written by the code.", Err: err}
	case errors.Is(err, guest.ErrNoSpace):
		return &ToolError{Code: CodeInvalidInput, Message: "no space left in the sandbox to write " + name + ".", Err: err}
	case errors.Is(err, guest.ErrInvalidPath):
		return &ToolError{Code: CodeInvalidInput, Message: "path: not a path that can exist.", Err: err}
	case errors.Is(err, guest.ErrTooLarge):
		return &ToolError{Code: CodeInvalidInput, Message: name + " is too large for the editor; use bash.", Err: err}
	}
	return err
}

func read(ctx context.Context, f files, name string, limit int64) (_ []byte, err error) {
	body, _, err := f.Get(ctx, name, guest.GetOptions{AsCode: true, Max: limit})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, body.Close()) }()
	b, err := io.ReadAll(body)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return b, nil
}

func view(ctx context.Context, f files, name string, input *claude.Node) (*claude.Node, error) {
	info, err := f.Stat(ctx, name, guest.StatOptions{AsCode: true})
	if err != nil {
		return nil, err
	}
	if info.Type == guest.TypeDir {
		return viewFolder(ctx, f, name)
	}
	b, err := read(ctx, f, name, maxViewBytes)
	if err != nil {
		return nil, err
	}
	if kind, _ := sniff(b); kind != "" {
		return claude.NewObject("type", "text_editor_code_execution_view_result", "file_type", kind,
			"content", base64.StdEncoding.EncodeToString(b), "num_lines", nil, "start_line", nil, "total_lines", nil), nil
	}
	if strings.IndexByte(string(b[:min(len(b), 8192)]), 0) >= 0 {
		return nil, invalid(name + " is not a text file; read it with bash or Python.")
	}
	return viewText(name, decode(b), input)
}

func viewText(name, s string, input *claude.Node) (*claude.Node, error) {
	lines := splitLines(s)
	first, last, bad := viewRange(input, len(lines))
	if bad != nil {
		return nil, bad
	}
	content := strings.Join(lines[first-1:last], "\n")
	if n := utf8.RuneCountInString(content); n > MaxCharacters {
		return nil, invalid(fmt.Sprintf("%s: %d characters are too many to view at once (limit %d); use view_range, or bash.", name, n, MaxCharacters))
	}
	return viewResult(content, last-first+1, first, len(lines)), nil
}

func viewResult(content string, n, first, total int) *claude.Node {
	return claude.NewObject("type", "text_editor_code_execution_view_result", "file_type", "text",
		"content", content, "num_lines", n, "start_line", first, "total_lines", total)
}

// viewRange reads view_range: first and last line, counted from 1.
func viewRange(input *claude.Node, total int) (first, last int, bad *ToolError) {
	v := input.Get("view_range")
	if v.IsNull() {
		return 1, total, nil
	}
	wrong := invalid(fmt.Sprintf("view_range: two line numbers from 1 to %d are required; -1 is the last line.", total))
	if len(v.Elems()) != 2 {
		return 0, 0, wrong
	}
	from, ok1 := v.Items[0].Int()
	to, ok2 := v.Items[1].Int()
	if to == -1 || to > int64(total) {
		to = int64(total)
	}
	if !ok1 || !ok2 || from < 1 || from > to {
		return 0, 0, wrong
	}
	return int(from), int(to), nil
}

func viewFolder(ctx context.Context, f files, name string) (*claude.Node, error) {
	entries, err := f.List(ctx, name, listingLevels, maxListing)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(entries, func(a, b sandbox.FileInfo) int { return strings.Compare(a.Path, b.Path) })
	var lines []string
	for _, e := range entries {
		if strings.Contains(strings.TrimPrefix(e.Path, name), "/.") {
			continue
		}
		p := e.Path
		if e.Type == guest.TypeDir {
			p += "/"
		}
		lines = append(lines, decode([]byte(p)))
	}
	return viewResult(strings.Join(lines, "\n"), len(lines), 1, len(lines)), nil
}

// sniff tells images and PDF files by their first bytes, never by their name.
func sniff(b []byte) (fileType, mime string) {
	s := string(b[:min(len(b), 16)])
	switch {
	case strings.HasPrefix(s, "%PDF-"):
		return "pdf", "application/pdf"
	case strings.HasPrefix(s, "\x89PNG\r\n\x1a\n"):
		return "image", "image/png"
	case strings.HasPrefix(s, "\xff\xd8\xff"):
		return "image", "image/jpeg"
	case strings.HasPrefix(s, "GIF87a"), strings.HasPrefix(s, "GIF89a"):
		return "image", "image/gif"
	case strings.HasPrefix(s, "RIFF") && len(s) >= 12 && s[8:12] == "WEBP":
		return "image", "image/webp"
	}
	return "", ""
}

func create(ctx context.Context, f files, name string, input *claude.Node) (*claude.Node, error) {
	body, bad := optional(input, "file_text")
	if bad != nil {
		return nil, bad
	}
	info, err := f.Stat(ctx, name, guest.StatOptions{AsCode: true})
	exists := err == nil
	if err != nil && !errors.Is(err, guest.ErrNotExist) {
		return nil, err
	}
	if exists && info.Type != guest.TypeFile {
		return nil, invalid(name + " is not a regular file.")
	}
	if err := f.Put(ctx, name, strings.NewReader(body), guest.PutOptions{AsCode: true, MkdirAll: true}); err != nil {
		return nil, err
	}
	return claude.NewObject("type", "text_editor_code_execution_create_result", "is_file_update", exists), nil
}

func replace(ctx context.Context, f files, name string, input *claude.Node) (*claude.Node, error) {
	before, bad := text(input, "old_str")
	if bad != nil {
		return nil, bad
	}
	after, bad := optional(input, "new_str")
	if bad != nil {
		return nil, bad
	}
	b, err := read(ctx, f, name, maxEditBytes)
	if err != nil {
		return nil, err
	}
	changed, bad := replaceOnce(string(b), before, after)
	if bad != nil {
		return nil, bad
	}
	if err := f.Put(ctx, name, strings.NewReader(changed), guest.PutOptions{AsCode: true}); err != nil {
		return nil, err
	}
	h := diff(decode(b), decode([]byte(changed)))
	lines := claude.NewArray()
	for _, l := range h.lines {
		lines.Items = append(lines.Items, claude.NewString(l))
	}
	return claude.NewObject("type", "text_editor_code_execution_str_replace_result", "old_start", h.oldStart, "old_lines", h.oldLines,
		"new_start", h.newStart, "new_lines", h.newLines, "lines", lines), nil
}

// replaceOnce replaces a text that must occur exactly once.
func replaceOnce(s, before, after string) (string, *ToolError) {
	switch before {
	case "":
		return "", invalid("old_str: a text that occurs in the file is required.")
	case after:
		return "", invalid("old_str and new_str are the same; nothing would change.")
	}
	i := strings.Index(s, before)
	if i < 0 {
		return "", invalid("old_str does not occur in the file; it must match exactly, white space included.")
	}
	if strings.Contains(s[i+1:], before) {
		return "", invalid(fmt.Sprintf("old_str occurs %d times in the file; it must occur exactly once, so give more of the text around it.", occurrences(s, before)))
	}
	return s[:i] + after + s[i+len(before):], nil
}

// occurrences counts overlapping ones too: "aa" is twice in "aaa".
func occurrences(s, sub string) int {
	n := 0
	for i := strings.Index(s, sub); i >= 0; i = strings.Index(s, sub) {
		n++
		s = s[i+1:]
	}
	return n
}
