package e2e

import (
	"context"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/toolrunner"
)

type cityInput struct {
	City string `json:"city" jsonschema:"required"`
}

// The tool runner asks for a message thread first; it is refused, and the runner goes on with the whole history. It also
// takes the container from each answer to the next request.
func TestToolRunnerFinishesWithDefaultOptions(t *testing.T) {
	t.Parallel()
	c := newClient(server.key)
	calls := 0
	tool, err := toolrunner.NewBetaToolFromJSONSchema("weather", "The weather of a city",
		func(_ context.Context, in cityInput) (anthropic.BetaToolResultBlockParamContentUnion, error) {
			calls++
			return anthropic.BetaToolResultBlockParamContentUnion{OfText: &anthropic.BetaTextBlockParam{Text: "sunny in " + in.City}}, nil
		})
	if err != nil {
		t.Fatal(err)
	}
	runner := c.Beta.Messages.NewToolRunner([]anthropic.BetaTool{tool}, anthropic.BetaToolRunnerParams{
		BetaMessageNewParams: anthropic.BetaMessageNewParams{
			Model: "script", MaxTokens: 4096,
			Tools: []anthropic.BetaToolUnionParam{{OfCodeExecutionTool20260120: &anthropic.BetaCodeExecutionTool20260120Param{}}},
			Messages: []anthropic.BetaMessageParam{anthropic.NewBetaUserMessage(anthropic.NewBetaTextBlock(script(
				fence("bash", "echo one > trail"), fence("tool weather", `{"city":"Rome"}`),
				fence("bash", "echo two >> trail; wc -l < trail"), "Finished.")))},
		},
		MaxIterations: 6,
	})
	last, err := runner.RunToCompletion(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if calls != 1 || last.StopReason != "end_turn" {
		t.Errorf("%d calls of the tool, stopped with %q", calls, last.StopReason)
	}
	if raw := last.RawJSON(); !strings.Contains(raw, `"stdout":"2\n"`) {
		t.Errorf("the last answer did not work in the container of the first: %s", raw)
	}
}

func TestToolRunnerGetsALongEditInOneStep(t *testing.T) {
	t.Parallel()
	c := newClient(server.key)
	runner := c.Beta.Messages.NewToolRunner(nil, anthropic.BetaToolRunnerParams{
		BetaMessageNewParams: anthropic.BetaMessageNewParams{
			Model: "script", MaxTokens: 4096,
			Tools:    []anthropic.BetaToolUnionParam{{OfCodeExecutionTool20260120: &anthropic.BetaCodeExecutionTool20260120Param{}}},
			Messages: []anthropic.BetaMessageParam{anthropic.NewBetaUserMessage(anthropic.NewBetaTextBlock(longEdit(45)))},
		},
		MaxIterations: 3,
	})
	last, err := runner.RunToCompletion(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if last.StopReason != "end_turn" || !strings.Contains(last.RawJSON(), `"stdout":"45\n"`) {
		t.Errorf("stopped with %q", last.StopReason)
	}
}
