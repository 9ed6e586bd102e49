package codeexec

import (
	"encoding/base64"

	"github.com/airlock-sandbox/airlock/internal/claude"
)

const noteEncrypted = "[airlock] The output of this code is encrypted and cannot be shown here."

// Render returns the content of a result block as the upstream is shown it in a
// tool_result, and whether it is an error. It depends on the decoded values
// only, so a replayed block gives the bytes that the first turn gave. Blocks and
// codes that this server never makes are taken as well: history may come from
// elsewhere.
func Render(b *claude.Node) (content *claude.Node, isError bool) {
	c := b.Get("content")
	switch c.Type() {
	case "bash_code_execution_result", "code_execution_result":
		return textOf(c, "stdout", "stderr", "return_code"), false
	case "encrypted_code_execution_result":
		return claude.NewString(claude.NewObject("stdout", noteEncrypted, "stderr", c.Get("stderr").Str(), "return_code", c.Get("return_code")).Text()), false
	case "text_editor_code_execution_view_result":
		if m := mediaBlock(c); m != nil {
			return claude.NewArray(m), false
		}
		return textOf(c, "content", "num_lines", "start_line", "total_lines"), false
	case "text_editor_code_execution_create_result":
		return textOf(c, "is_file_update"), false
	case "text_editor_code_execution_str_replace_result":
		return textOf(c, "old_start", "old_lines", "new_start", "new_lines", "lines"), false
	}
	if code := c.Get("error_code"); code != nil {
		return textOf(c, "error_code", "error_message"), true
	}
	return claude.NewString(c.Text()), false
}

// textOf is the JSON text of the named members, with one spelling per value.
func textOf(c *claude.Node, names ...string) *claude.Node {
	out := claude.NewObject()
	for _, name := range names {
		if v := c.Get(name); v != nil {
			out.Set(name, plain(v))
		}
	}
	return claude.NewString(out.Text())
}

// plain spells strings anew, since a client may have escaped them otherwise.
func plain(v *claude.Node) *claude.Node {
	switch v.Kind {
	case claude.String:
		return claude.NewString(v.Str())
	case claude.Array:
		out := claude.NewArray()
		for _, it := range v.Items {
			out.Items = append(out.Items, plain(it))
		}
		return out
	case claude.Null, claude.Bool, claude.Number, claude.Object:
	}
	return v
}

// mediaBlock shows a viewed image or PDF to the model as what it is.
func mediaBlock(c *claude.Node) *claude.Node {
	kind := c.Get("file_type").Str()
	if kind != "image" && kind != "pdf" {
		return nil
	}
	data := c.Get("content").Str()
	head, err := base64.StdEncoding.DecodeString(data[:min(len(data), 64)&^3])
	if err != nil {
		return nil
	}
	_, mime := sniff(head)
	if mime == "" {
		return nil
	}
	block := "image"
	if kind == "pdf" {
		block = "document"
	}
	return claude.NewObject("type", block, "source", claude.NewObject("type", "base64", "media_type", mime, "data", data))
}
