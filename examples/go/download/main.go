// Command download brings a file that a sandbox made into this folder, never over another, and deletes it on the server,
// where it would stay for good.
//
//	go run ./examples/go/download FILE_ID
//
// The environment is that of upload-and-edit.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"

	"github.com/airlock-sandbox/airlock"
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) != 1 {
		return errors.New("usage: download FILE_ID")
	}
	env, err := airlock.EnvFromOS()
	if err != nil {
		return err
	}
	files, err := airlock.NewFiles(env, airlock.WithAuthToken(os.Getenv("USER_JWT")))
	if err != nil {
		return err
	}
	file, err := files.Get(ctx, args[0])
	if airlock.IsNotFound(err) {
		return fmt.Errorf("there is no file %s for this user", args[0])
	}
	if err != nil {
		return err
	}
	if err := save(ctx, files, args[0], filepath.Base(file.Filename)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(out, "%s, %d bytes\n", file.Filename, file.SizeBytes); err != nil {
		return err
	}
	return files.Delete(ctx, args[0])
}

func save(ctx context.Context, files *airlock.Files, id, name string) error {
	content, err := files.Download(ctx, id)
	if err != nil {
		return err
	}
	defer content.Body.Close()
	to, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := io.Copy(to, content.Body); err != nil {
		return errors.Join(err, to.Close())
	}
	return to.Close()
}
