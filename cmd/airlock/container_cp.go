package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

func newContainerCpCommand() *cobra.Command {
	return apiCommand(&cobra.Command{
		Use:   "cp SOURCE DESTINATION",
		Short: "Copy one file into a container or out of it",
		Long:  "Copy one file. One of the two is CONTAINER:PATH, the other a local path or - for standard input or output.",
		Example: `  airlock container cp report.docx container_0123:/workspace/
  airlock container cp container_0123:/workspace/report.docx edited.docx`,
		Args: cobra.ExactArgs(2),
	}, func(ctx context.Context, c *client, cmd *cobra.Command, args []string) error {
		fromID, from, fromRemote := splitRemote(args[0])
		toID, to, toRemote := splitRemote(args[1])
		switch {
		case fromRemote && !toRemote:
			return c.copyOut(ctx, newNotes(cmd), fromID, from, args[1], cmd.OutOrStdout())
		case toRemote && !fromRemote:
			return c.copyIn(ctx, newNotes(cmd), args[0], cmd.InOrStdin(), toID, to)
		}
		return usageError(cmd, errors.New("exactly one of the two must be CONTAINER:PATH"))
	})
}

// splitRemote splits CONTAINER:PATH. Only ids of containers count, so that local names may hold a colon.
func splitRemote(arg string) (id, path string, ok bool) {
	id, path, ok = strings.Cut(arg, ":")
	return id, path, ok && strings.HasPrefix(id, "container_")
}

// remotePath is the route of a file in a container; relative paths lie in the working folder.
func remotePath(id, p string) string {
	if !path.IsAbs(p) {
		p = path.Join("/workspace", p)
	}
	return containerPath(id) + "/files" + (&url.URL{Path: path.Clean(p)}).EscapedPath()
}

func (c *client) copyIn(ctx context.Context, n notes, src string, stdin io.Reader, id, dst string) error {
	in, name, size := stdin, "stdin", int64(-1)
	if src == "-" {
		in = interruptible(ctx, stdin)
	} else {
		f, err := os.Open(src)
		if err != nil {
			return err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%s is not a regular file", src)
		}
		in, name, size = f, filepath.Base(src), info.Size()
	}
	if dst == "" || strings.HasSuffix(dst, "/") {
		dst = path.Join(dst, name)
	}
	pr, pw := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := n.copy(pw, in, size, "sent", name)
		pw.CloseWithError(err)
	}()
	resp, err := c.send(ctx, http.MethodPut, remotePath(id, dst), "application/octet-stream", pr)
	pr.CloseWithError(errors.New("copy ended"))
	<-done
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

func (c *client) copyOut(ctx context.Context, n notes, id, src, dst string, stdout io.Writer) (err error) {
	resp, err := c.send(ctx, http.MethodGet, remotePath(id, src), "", nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if dst == "-" {
		_, err = io.Copy(stdout, resp.Body)
		return err
	}
	if info, statErr := os.Stat(dst); statErr == nil && info.IsDir() {
		dst = filepath.Join(dst, path.Base(src))
	}
	return save(dst, func(w io.Writer) error {
		return n.copy(w, resp.Body, resp.ContentLength, "copied", path.Base(src))
	})
}
