// Command upload-and-edit has the model edit a document in a sandbox, and prints the ids of the results.
//
//	go run ./examples/go/upload-and-edit [-plain] FILE PROMPT
//
// API_WORKER_URL, DEEPSPACE_APP_ID and APP_IDENTITY_TOKEN say where and which app, USER_JWT who asks and pays.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"log"
	"os"
	"path/filepath"

	"github.com/anthropics/anthropic-sdk-go/v2"

	"github.com/airlock-sandbox/airlock"
)

func main() {
	plain := flag.Bool("plain", false, "wait for the whole answer in place of a stream")
	flag.Parse()
	if err := run(context.Background(), *plain, flag.Args(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, plain bool, args []string, out io.Writer) error {
	if len(args) != 2 {
		return errors.New("usage: upload-and-edit [-plain] FILE PROMPT")
	}
	env, err := airlock.EnvFromOS()
	if err != nil {
		return err
	}
	user := airlock.WithAuthToken(os.Getenv("USER_JWT"))
	files, err := airlock.NewFiles(env, user)
	if err != nil {
		return err
	}
	client, err := airlock.NewClient(env, user)
	if err != nil {
		return err
	}
	document, err := os.Open(args[0])
	if err != nil {
		return err
	}
	defer document.Close()
	uploaded, err := files.Upload(ctx, document, airlock.UploadOptions{Filename: filepath.Base(args[0])})
	if err != nil {
		return err
	}
	request := anthropic.MessageNewParams{
		Model: "claude-sonnet-5", MaxTokens: 16000,
		Tools:    []anthropic.ToolUnionParam{airlock.CodeExecutionTool()},
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(args[1]), airlock.Upload(uploaded.ID))},
	}
	var steps []*anthropic.Message
	if plain {
		var message *anthropic.Message
		message, err = client.Messages.New(ctx, request)
		steps = append(steps, message)
	} else {
		steps, err = airlock.Run(ctx, client, request, nil, airlock.RunOptions{})
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(airlock.CollectOutputs(steps...))
}
