// Command callable-tool lets code in the sandbox ask a tool of the application, which gets the answers and no credential.
//
//	go run ./examples/go/callable-tool PROMPT
//
// The environment is that of upload-and-edit. The steps are printed, each as the JSON of its answer.
package main

import (
	"context"
	"encoding/json"
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

var deals = map[string][]int{"Q1": {120, 80}, "Q2": {90}}

// lookupDeals runs here, in the application, with its own checks of what this user may see.
func lookupDeals(_ context.Context, input json.RawMessage) (string, error) {
	var question struct {
		Quarter string `json:"quarter"`
	}
	if err := json.Unmarshal(input, &question); err != nil {
		return "", err
	}
	amounts, ok := deals[question.Quarter]
	if !ok {
		return "", fmt.Errorf("there is no quarter %q", question.Quarter)
	}
	answer, err := json.Marshal(map[string]any{"quarter": question.Quarter, "amounts": amounts})
	return string(answer), err
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) != 1 {
		return errors.New("usage: callable-tool PROMPT")
	}
	env, err := airlock.EnvFromOS()
	if err != nil {
		return err
	}
	client, err := airlock.NewClient(env, airlock.WithAuthToken(os.Getenv("USER_JWT")))
	if err != nil {
		return err
	}
	tool := airlock.Tool{
		Name: "lookup_deals",
		Param: airlock.CallableFromSandbox(anthropic.ToolParam{
			Name:        "lookup_deals",
			Description: anthropic.String(`The deals of a quarter. Returns JSON: {"quarter": str, "amounts": [int]}.`),
			InputSchema: anthropic.ToolInputSchemaParam{
				Properties: map[string]any{"quarter": map[string]any{"type": "string", "enum": []string{"Q1", "Q2"}}},
				Required:   []string{"quarter"},
			},
		}),
		Call: lookupDeals,
	}
	steps, err := airlock.Run(ctx, client, anthropic.MessageNewParams{
		Model: "claude-sonnet-5", MaxTokens: 16000,
		Tools:    []anthropic.ToolUnionParam{airlock.CodeExecutionTool()},
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(args[0]))},
	}, []airlock.Tool{tool}, airlock.RunOptions{})
	if err != nil {
		return err
	}
	for _, step := range steps {
		if _, err := fmt.Fprintln(out, step.RawJSON()); err != nil {
			return err
		}
	}
	return nil
}
