// Command keep-sandbox is a conversation whose turns share one sandbox, with its files and variables. Each argument is a
// turn; the container's id and the last answer, as JSON, are printed.
//
//	go run ./examples/go/keep-sandbox PROMPT [MORE PROMPTS]
//
// The environment is that of upload-and-edit. An application keeps messages and container between turns in its storage.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/anthropics/anthropic-sdk-go/v2"

	"github.com/airlock-sandbox/airlock"
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, prompts []string, out io.Writer) error {
	if len(prompts) == 0 {
		return errors.New("usage: keep-sandbox PROMPT [MORE PROMPTS]")
	}
	env, err := airlock.EnvFromOS()
	if err != nil {
		return err
	}
	client, err := airlock.NewClient(env, airlock.WithAuthToken(os.Getenv("USER_JWT")))
	if err != nil {
		return err
	}
	var messages []anthropic.MessageParam
	var container string
	var last *anthropic.Message
	for _, prompt := range prompts {
		messages = append(messages, anthropic.NewUserMessage(anthropic.NewTextBlock(prompt)))
		request := anthropic.MessageNewParams{
			Model: "claude-sonnet-5", MaxTokens: 16000,
			Tools:    []anthropic.ToolUnionParam{airlock.CodeExecutionTool()},
			Messages: messages,
		}
		airlock.ReuseContainer(&request, container)
		steps, err := airlock.Run(ctx, client, request, nil, airlock.RunOptions{
			OnMessage: func(m anthropic.MessageParam) { messages = append(messages, m) },
		})
		if err != nil {
			return err
		}
		last = steps[len(steps)-1]
		if made := airlock.CollectOutputs(steps...); made.ContainerID != "" {
			container = made.ContainerID
		}
	}
	_, err = fmt.Fprintln(out, container, last.RawJSON())
	return err
}
