package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
)

func newFileCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "file",
		Short:   "Upload, list and download files",
		Example: "  airlock file upload report.docx\n  airlock file download file_0123",
	}
	cmd.AddCommand(newFileUploadCommand(), newFileListCommand(), newFileGetCommand(), newFileDownloadCommand(), newFileRmCommand())
	return cmd
}

// apiCommand gives cmd the flags of a command that acts as an app, and runs it with a connected client.
func apiCommand(cmd *cobra.Command, run func(ctx context.Context, c *client, cmd *cobra.Command, args []string) error) *cobra.Command {
	var conn connection
	conn.addFlags(cmd, true)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := conn.dialAPI(cmd.Context())
		if err != nil {
			return err
		}
		defer c.close(cmd.Context())
		return run(cmd.Context(), c, cmd, args)
	}
	return cmd
}

// remoteFile is a file object of the Files API.
type remoteFile struct {
	ID       string `json:"id"`
	Filename string `json:"filename"`
	Size     int64  `json:"size_bytes"`
}

func newFileUploadCommand() *cobra.Command {
	var asJSON bool
	var expires time.Duration
	cmd := apiCommand(&cobra.Command{
		Use:     "upload FILE...",
		Short:   "Upload files; - is standard input",
		Example: "  airlock file upload report.docx figures.xlsx\n  airlock file upload --expires-in 24h - < notes.txt",
		Args:    cobra.MinimumNArgs(1),
	}, func(ctx context.Context, c *client, cmd *cobra.Command, args []string) error {
		rows := []json.RawMessage{}
		for _, path := range args {
			raw, err := c.upload(ctx, newNotes(cmd), cmd.InOrStdin(), path, expires)
			if err != nil {
				return err
			}
			if rows = append(rows, raw); asJSON {
				continue
			}
			var f remoteFile
			if err := json.Unmarshal(raw, &f); err != nil {
				return err
			}
			if _, err := fmt.Fprintln(cmd.OutOrStdout(), oneLine(f.ID)); err != nil {
				return err
			}
		}
		if asJSON {
			return printJSON(cmd.OutOrStdout(), rows)
		}
		return nil
	})
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON: an array of file objects")
	durationVar(cmd.Flags(), &expires, "expires-in", "when the server forgets the files, 1h to 2160h; 0 is never")
	return cmd
}

// upload sends one local file ("-": stdin) and returns the file object.
func (c *client) upload(ctx context.Context, n notes, stdin io.Reader, path string, expires time.Duration) (_ json.RawMessage, err error) {
	src, name, size := stdin, "stdin", int64(-1)
	if path == "-" {
		src = interruptible(ctx, stdin)
	} else {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() {
			return nil, fmt.Errorf("%s is not a regular file", path)
		}
		src, name, size = f, filepath.Base(path), info.Size()
	}
	pr, pw := io.Pipe()
	form := multipart.NewWriter(pw)
	done := make(chan struct{})
	go func() {
		defer close(done)
		pw.CloseWithError(writeForm(form, n, src, name, size, expires))
	}()
	defer func() {
		pr.CloseWithError(errors.New("upload ended")) // lets the writer go when the server answered early
		<-done
	}()
	resp, err := c.send(ctx, http.MethodPost, "/v1/files", form.FormDataContentType(), pr)
	if err != nil {
		return nil, fmt.Errorf("upload of %s: %w", name, err)
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	var raw json.RawMessage
	if err := json.NewDecoder(resp.Body).Decode(&raw); err != nil {
		return nil, fmt.Errorf("upload of %s: %w", name, err)
	}
	return raw, nil
}

func writeForm(form *multipart.Writer, n notes, src io.Reader, name string, size int64, expires time.Duration) error {
	if expires > 0 {
		if err := form.WriteField("expires_in_seconds", fmt.Sprint(int64(expires/time.Second))); err != nil {
			return err
		}
	}
	part, err := form.CreateFormFile("file", name)
	if err != nil {
		return err
	}
	if err := n.copy(part, src, size, "uploaded", name); err != nil {
		return err
	}
	return form.Close()
}

func newFileListCommand() *cobra.Command {
	var asJSON bool
	var limit int
	cmd := apiCommand(&cobra.Command{
		Use:     "list",
		Short:   "List files, newest first",
		Example: "  airlock file list --limit 20",
		Args:    cobra.NoArgs,
	}, func(ctx context.Context, c *client, cmd *cobra.Command, _ []string) error {
		var rows []json.RawMessage
		err := c.list(ctx, "/v1/files", func(raw json.RawMessage) error {
			rows = append(rows, raw)
			if limit > 0 && len(rows) >= limit {
				return errEnough
			}
			return nil
		})
		if err != nil && !errors.Is(err, errEnough) {
			return err
		}
		return printList(cmd, asJSON, rows, "id", "filename", "size_bytes", "mime_type", "created_at", "downloadable")
	})
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().IntVar(&limit, "limit", 0, "stop after so many; 0 is all")
	return cmd
}

// errEnough ends a list early.
var errEnough = errors.New("enough")

func filePath(id string) string { return "/v1/files/" + url.PathEscape(id) }

func newFileGetCommand() *cobra.Command {
	var asJSON bool
	cmd := apiCommand(&cobra.Command{
		Use:     "get ID",
		Short:   "Show what is known about a file",
		Example: "  airlock file get file_0123",
		Args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, c *client, cmd *cobra.Command, args []string) error {
		var raw json.RawMessage
		if err := c.call(ctx, http.MethodGet, filePath(args[0]), nil, &raw); err != nil {
			return err
		}
		return printOne(cmd, asJSON, raw, func(m map[string]any) string {
			return fmt.Sprintf("%s  %s  %s bytes  %s  created %s  downloadable %s",
				cell(m["id"]), cell(m["filename"]), cell(m["size_bytes"]), cell(m["mime_type"]), cell(m["created_at"]), cell(m["downloadable"]))
		})
	})
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func newFileDownloadCommand() *cobra.Command {
	var out string
	cmd := apiCommand(&cobra.Command{
		Use:     "download ID",
		Short:   "Download a file that was made in a container",
		Example: "  airlock file download file_0123\n  airlock file download file_0123 -o result.docx\n  airlock file download file_0123 -o - | wc -c",
		Args:    cobra.ExactArgs(1),
	}, func(ctx context.Context, c *client, cmd *cobra.Command, args []string) error {
		switch out {
		case "-":
			return c.content(ctx, notes{w: io.Discard}, args[0], "", cmd.OutOrStdout(), -1)
		case "":
			_, path, err := c.download(ctx, newNotes(cmd), args[0], ".")
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), oneLine(path))
			return err
		default:
			return save(out, func(w io.Writer) error {
				return c.content(ctx, newNotes(cmd), args[0], out, w, -1)
			})
		}
	})
	cmd.Flags().StringVarP(&out, "output", "o", "", "where to; - is standard output (default: its own name, never over an existing file)")
	return cmd
}

// download saves a file under its own name in dir, beside what is there already: "name (2).ext".
func (c *client) download(ctx context.Context, n notes, id, dir string) (remoteFile, string, error) {
	var meta remoteFile
	if err := c.call(ctx, http.MethodGet, filePath(id), nil, &meta); err != nil {
		return meta, "", err
	}
	f, err := createBeside(dir, meta.Filename)
	if err != nil {
		return meta, "", err
	}
	if err = c.content(ctx, n, id, meta.Filename, f, meta.Size); err != nil {
		return meta, "", errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	return meta, f.Name(), f.Close()
}

func (c *client) content(ctx context.Context, n notes, id, name string, dst io.Writer, size int64) error {
	resp, err := c.send(ctx, http.MethodGet, filePath(id)+"/content", "", nil)
	if err != nil {
		return err
	}
	if size < 0 {
		size = resp.ContentLength
	}
	err = n.copy(dst, resp.Body, size, "downloaded", name)
	return errors.Join(err, resp.Body.Close())
}

// createBeside makes a new file called name in dir; if there is one already, "name (2).ext" and so on. The name comes from
// another machine: only its last part counts, it never names a folder, and nothing in it controls a terminal.
func createBeside(dir, name string) (*os.File, error) {
	base := oneLine(filepath.Base(filepath.Clean("/" + name)))
	if base == "/" || base == "." {
		base = "unnamed"
	}
	ext := filepath.Ext(base)
	stem := base[:len(base)-len(ext)]
	if stem == "" {
		stem, ext = base, ""
	}
	for i := 1; i < 10000; i++ {
		try := base
		if i > 1 {
			try = fmt.Sprintf("%s (%d)%s", stem, i, ext)
		}
		f, err := os.OpenFile(filepath.Join(dir, try), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if !errors.Is(err, os.ErrExist) {
			return f, err
		}
	}
	return nil, fmt.Errorf("too many files called %s in %s", base, dir)
}

func newFileRmCommand() *cobra.Command {
	return apiCommand(&cobra.Command{
		Use:     "rm ID...",
		Short:   "Delete files",
		Example: "  airlock file rm file_0123",
		Args:    cobra.MinimumNArgs(1),
	}, func(ctx context.Context, c *client, cmd *cobra.Command, args []string) error {
		for _, id := range args {
			if err := c.call(ctx, http.MethodDelete, filePath(id), nil, nil); err != nil {
				return fmt.Errorf("%s: %w", id, err)
			}
			if _, err := fmt.Fprintln(cmd.OutOrStdout(), "deleted", id); err != nil {
				return err
			}
		}
		return nil
	})
}
