// Command app-scope-job shows a job that works on without its user: he hands in a document, and the owner of the app pays.
//
//	go run ./examples/go/app-scope-job hand-in FILE       as the user; prints the id of the file
//	go run ./examples/go/app-scope-job work ID PROMPT     as the job; prints the names of the results
//
// The environment is that of upload-and-edit; the job has APP_OWNER_JWT in place of USER_JWT.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/anthropics/anthropic-sdk-go/v2"

	"github.com/airlock-sandbox/airlock"
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	env, err := airlock.EnvFromOS()
	if err != nil {
		return err
	}
	switch {
	case len(args) == 2 && args[0] == "hand-in":
		return handIn(ctx, env, args[1], out)
	case len(args) == 3 && args[0] == "work":
		return work(ctx, env, args[1], args[2], out)
	default:
		return errors.New("usage: app-scope-job hand-in FILE | work ID PROMPT")
	}
}

// handIn uploads with app scope: what has user scope the job could not see.
func handIn(ctx context.Context, env airlock.Env, path string, out io.Writer) error {
	files, err := airlock.NewFiles(env, airlock.WithAuthToken(os.Getenv("USER_JWT")), airlock.WithScope(airlock.ScopeApp))
	if err != nil {
		return err
	}
	document, err := os.Open(path)
	if err != nil {
		return err
	}
	defer document.Close()
	uploaded, err := files.Upload(ctx, document, airlock.UploadOptions{Filename: filepath.Base(path), ExpiresIn: 24 * time.Hour})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, uploaded.ID)
	return err
}

// work has no user: without WithAuthToken it is the owner of the app who asks and pays.
func work(ctx context.Context, env airlock.Env, id, prompt string, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Minute)
	defer cancel()
	shared := airlock.WithScope(airlock.ScopeApp)
	files, err := airlock.NewFiles(env, shared)
	if err != nil {
		return err
	}
	client, err := airlock.NewClient(env, shared)
	if err != nil {
		return err
	}
	steps, err := airlock.Run(ctx, client, anthropic.MessageNewParams{
		Model: "claude-sonnet-5", MaxTokens: 16000,
		Tools:    []anthropic.ToolUnionParam{airlock.CodeExecutionTool()},
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(prompt), airlock.Upload(id))},
	}, nil, airlock.RunOptions{})
	if err != nil {
		return err
	}
	// What is to stay belongs into the storage of the application; here it is only named.
	for _, id := range airlock.CollectOutputs(steps...).FileIDs {
		file, err := files.Get(ctx, id)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(out, file.Filename); err != nil {
			return err
		}
	}
	return nil
}
