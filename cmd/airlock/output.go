package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// printJSON writes v, indented, as one JSON document.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// printOne shows an answer of the server: as JSON, or the text that line makes of it.
func printOne(cmd *cobra.Command, asJSON bool, raw json.RawMessage, line func(map[string]any) string) error {
	if asJSON {
		return printJSON(cmd.OutOrStdout(), raw)
	}
	m, err := fields(raw)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(cmd.OutOrStdout(), printable(line(m)))
	return err
}

// printList shows a list: as a JSON array, or as a table of the named members.
func printList(cmd *cobra.Command, asJSON bool, rows []json.RawMessage, columns ...string) error {
	if asJSON {
		if rows == nil {
			rows = []json.RawMessage{}
		}
		return printJSON(cmd.OutOrStdout(), rows)
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, strings.ToUpper(strings.Join(columns, "\t"))) // the error is kept for Flush
	for _, raw := range rows {
		m, err := fields(raw)
		if err != nil {
			return err
		}
		cells := make([]string, len(columns))
		for i, c := range columns {
			cells[i] = cell(m[c])
		}
		_, _ = fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	return w.Flush()
}

func fields(raw json.RawMessage) (map[string]any, error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var m map[string]any
	if err := dec.Decode(&m); err != nil {
		return nil, fmt.Errorf("answer of the server: %w", err)
	}
	return m, nil
}

// cell shows a value in a table; times without their fraction.
func cell(v any) string {
	switch v := v.(type) {
	case nil:
		return "-"
	case string:
		if t, err := time.Parse(time.RFC3339Nano, v); err == nil {
			return t.UTC().Format("2006-01-02 15:04:05Z")
		}
		return oneLine(v)
	case []any:
		parts := make([]string, len(v))
		for i, e := range v {
			parts[i] = cell(e)
		}
		return strings.Join(parts, ",")
	default:
		return oneLine(fmt.Sprint(v))
	}
}

// oneLine is printable for what stands in a table or in the line of an error: nothing in it begins a line or a column.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' || r == '\n' || r == '\u2028' || r == '\u2029' {
			return '�'
		}
		return r
	}, printable(s))
}

// printable keeps what a name or a model wrote from controlling the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' || r == '\n' || (r >= ' ' && r != 0x7f && (r < 0x80 || r >= 0xa0) && !isBidiControl(r)) {
			return r
		}
		return '�'
	}, s)
}

func isBidiControl(r rune) bool {
	return r == 0x061c || r == 0x200e || r == 0x200f || (r >= 0x202a && r <= 0x202e) || (r >= 0x2066 && r <= 0x2069)
}

func byteCount(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	default:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	}
}

// notes writes what happens to standard error: with bars and dim text on a terminal, in plain lines elsewhere.
type notes struct {
	w     io.Writer
	fancy bool
}

func newNotes(cmd *cobra.Command) notes {
	w := cmd.ErrOrStderr()
	f, ok := w.(*os.File)
	return notes{w: w, fancy: ok && isatty.IsTerminal(f.Fd())}
}

// line prints one line that came from us.
func (n notes) line(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if n.fancy && os.Getenv("NO_COLOR") == "" {
		text = "\x1b[2m" + text + "\x1b[0m"
	}
	_, _ = fmt.Fprintln(n.w, text)
}

// copy moves bytes and shows how far it is; size may be -1 for unknown. verb is the finished action, "uploaded".
func (n notes) copy(dst io.Writer, src io.Reader, size int64, verb, name string) error {
	name = printable(name)
	if !n.fancy {
		done, err := io.Copy(dst, src)
		if err == nil {
			n.line("%s %s (%s)", verb, name, byteCount(done))
		}
		return err
	}
	bars := mpb.New(mpb.WithOutput(n.w), mpb.WithWidth(40))
	bar := bars.AddBar(size,
		mpb.PrependDecorators(decor.Name(name+" ")),
		mpb.AppendDecorators(decor.CountersKibiByte("% .1f / % .1f"), decor.Name(" "), decor.AverageSpeed(decor.SizeB1024(0), "% .1f")))
	defer bars.Wait()
	counted, err := bar.ProxyReader(src)
	if err != nil {
		bar.Abort(false)
		return err
	}
	done, err := io.Copy(dst, counted)
	if err != nil {
		bar.Abort(false)
		return err
	}
	bar.SetTotal(done, true)
	return nil
}
