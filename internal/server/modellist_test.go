package server

import (
	"strings"
	"testing"

	"github.com/airlock-sandbox/airlock/internal/tenant"
)

func TestAllowedModelsCountWhereverAModelIsNamed(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u := g.user(g.a, "u")
	names := []string{"m", "haiku-*"}
	if _, err := g.parts.tenants.UpdateApp(t.Context(), g.a.id, tenant.AppChange{AllowedModels: &names}); err != nil {
		t.Fatal(err)
	}
	const counting = proxy + "/messages/count_tokens"
	for more, path := range map[string]string{
		`,"tools":[{"type":"advisor_20260301","name":"advisor","model":"opus"}]`:                         "tools.0.model",
		`,"tools":[{"name":"x","input_schema":{"type":"object"}},{"type":"y","agent":{"model":"opus"}}]`: "tools.1.agent.model",
		`,"tools":[{"type":"y","agents":[{"model":"haiku-5"},{"mod\u0065l":"opus"}]}]`:                   "tools.0.agents.1.model",
		`,"tools":[{"type":"y","model":{"id":"opus"}}]`:                                                  "tools.0.model",
		`,"fallbacks":[{"model":"haiku-5"},{"model":"opus"}]`:                                            "fallbacks.1.model",
		`,"fallbacks":"default"`: "fallbacks",
		`,"Fallbacks":"default"`: "Fallbacks",
		`,"Model":"opus"`:        "Model",
		`,"context_management":{"edits":[{"type":"compact","model":"opus"}]}`:               "context_management.edits.0.model",
		`,"tools":[{"type":"y","MODEL":"opus"}]`:                                            "tools.0.MODEL",
		`,"multiagent":{"type":"coordinator","agents":[{"type":"advisor","model":"opus"}]}`: "multiagent.agents.0.model",
	} {
		for _, door := range []string{proxy + "/messages", counting} {
			a := g.call(u, "POST", door, message(textBlock, more))
			if !strings.HasPrefix(a.failure().Error.Message, path+": ") {
				t.Errorf("%s: %s, want the path %s", more, a.body, path)
			}
			g.refused(more, a, 403, "")
		}
	}
	g.refused("the model itself", g.say(u, strings.Replace(message(textBlock, ""), `"m"`, `"opus"`, 1)), 403, "")
	// What is the application's own data names no model, and what is on the list may be used.
	for _, more := range []string{
		`,"tools":[{"name":"x","input_schema":{"type":"object","properties":{"model":{"type":"string"}}},"input_examples":[{"model":"opus"}]}]`,
		`,"tools":[{"type":"advisor_20260301","name":"advisor","model":"haiku-5"}],"fallbacks":[{"model":"m"}]`,
		`,"tools":[{"type":"y","name":"y","model":null}],"metadata":{"model":"opus"}`,
		`,"system":[{"type":"text","text":"x","model":"opus"}]`,
	} {
		g.ok(more, g.say(u, message(textBlock, more)))
	}
	g.ok("an app without a list", g.say(g.user(g.b, "u"), message(textBlock, `,"tools":[{"type":"advisor_20260301","name":"advisor","model":"opus"}],"fallbacks":"default"`)))
}

func TestCountingTellsTheUpstreamNoMoreThanAMessageDoes(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	u := g.user(g.a, "u")
	const more = `,"billing_policy":{"to":"v"},"fallback_credit_token":"tok","metadata":{"user_id":"somebody"},"diagnostics":{"previous_message_id":"msg_1","other":1}`
	for _, door := range []string{proxy + "/messages", proxy + "/messages/count_tokens"} {
		a := g.call(u, "POST", door, message(textBlock, more))
		sent := g.up.requests()
		if len(sent) != 1 {
			t.Fatalf("%s: asked %d times: %s", door, len(sent), a.body)
		}
		for _, gone := range []string{"billing_policy", "fallback_credit_token", "somebody", "previous_message_id"} {
			if strings.Contains(sent[0].body, gone) {
				t.Errorf("%s: the upstream was sent %s: %s", door, gone, sent[0].body)
			}
		}
		if !strings.Contains(sent[0].body, `"other":1`) {
			t.Errorf("%s: what else diagnostics hold was lost: %s", door, sent[0].body)
		}
		g.ok(door, a)
		if a := g.call(u, "POST", door, message(textBlock, `,"metadata":"x"`)); a.status != 400 {
			t.Errorf("%s: metadata that is no object: %d %s", door, a.status, a.body)
		}
	}
}
