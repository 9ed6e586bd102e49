package airlock_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"

	"github.com/airlock-sandbox/airlock"
)

// The examples read their environment like an application. Here a small gateway stands behind it, which knows one document.
func TestMain(m *testing.M) {
	server := httptest.NewServer(http.HandlerFunc(documents))
	for name, value := range map[string]string{
		"API_WORKER_URL": server.URL, "APP_OWNER_JWT": "owner.jwt", "DEEPSPACE_APP_ID": "app_01", "APP_IDENTITY_TOKEN": "v1.identity",
	} {
		if err := os.Setenv(name, value); err != nil {
			log.Fatal(err)
		}
	}
	code := m.Run()
	server.Close()
	os.Exit(code)
}

// documents answers by what it is asked, whoever asks.
func documents(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	got := request{header: r.Header, body: body}
	switch _, path, _ := strings.Cut(r.URL.Path, "/anthropic/v1/"); {
	case path == "files" && r.Method == http.MethodPost:
		plain(200, strings.ReplaceAll(file("file_in"), "a.txt", "report.docx"), nil)(w, got)
	case path == "files":
		plain(200, `{"data":[`+file("file_out")+`],"next_page":null}`, nil)(w, got)
	case path == "files/file_out/content":
		plain(200, "the edited report", map[string]string{"content-type": "text/plain"})(w, got)
	case path != "messages":
		refuse(404, "Not found", "")(w, got)
	case strings.Contains(string(body), "tool_result"):
		says("end_turn", "container_1", text("Q1 is ahead."))(w, got)
	case strings.Contains(string(body), "lookup_deals"):
		says("tool_use", "container_1", codeCall, calls("toolu_1", "lookup_deals", `{"quarter":"Q1"}`))(w, got)
	default:
		says("end_turn", "container_1", made("srvtoolu_1", "file_out"), text("I added a summary."))(w, got)
	}
}

// Upload a document, have it edited, download the result.
func Example() {
	ctx := context.Background()
	env, err := airlock.EnvFromOS()
	if err != nil {
		log.Fatal(err)
	}
	user := airlock.WithAuthToken("user.jwt") // the user pays; without it the owner of the app
	files, err := airlock.NewFiles(env, user)
	if err != nil {
		log.Fatal(err)
	}
	client, err := airlock.NewClient(env, user)
	if err != nil {
		log.Fatal(err)
	}

	document, err := files.Upload(ctx, strings.NewReader("the report"), airlock.UploadOptions{Filename: "report.docx"})
	if err != nil {
		log.Fatal(err)
	}
	steps, err := airlock.Run(ctx, client, anthropic.MessageNewParams{
		Model: "claude-sonnet-5", MaxTokens: 64000,
		Tools: []anthropic.ToolUnionParam{airlock.CodeExecutionTool()},
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(
			anthropic.NewTextBlock("Add a summary on page one. Save the result in $OUTPUT_DIR."), airlock.Upload(document.ID))},
	}, nil, airlock.RunOptions{})
	if err != nil {
		log.Fatal(err)
	}
	for _, id := range airlock.CollectOutputs(steps...).FileIDs {
		response, err := files.Download(ctx, id)
		if err != nil {
			log.Fatal(err)
		}
		defer response.Body.Close()
		content, err := io.ReadAll(response.Body)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: %s\n", id, content)
	}
	// Output: file_out: the edited report
}

// Code in the sandbox asks a tool of the application.
func ExampleRun() {
	env, err := airlock.EnvFromOS()
	if err != nil {
		log.Fatal(err)
	}
	client, err := airlock.NewClient(env)
	if err != nil {
		log.Fatal(err)
	}
	deals := airlock.Tool{
		Name: "lookup_deals",
		Param: airlock.CallableFromSandbox(anthropic.ToolParam{
			Name: "lookup_deals", Description: anthropic.String("The deals of a quarter. Returns JSON."),
			InputSchema: anthropic.ToolInputSchemaParam{Properties: map[string]any{"quarter": map[string]any{"type": "string"}}, Required: []string{"quarter"}},
		}),
		Call: func(_ context.Context, input json.RawMessage) (string, error) {
			fmt.Println("asked for", string(input))
			return `[1, 2]`, nil // after the application's own checks
		},
	}
	steps, err := airlock.Run(context.Background(), client, anthropic.MessageNewParams{
		Model: "claude-sonnet-5", MaxTokens: 64000,
		Tools:    []anthropic.ToolUnionParam{airlock.CodeExecutionTool()},
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("Which quarter is ahead?"))},
	}, []airlock.Tool{deals}, airlock.RunOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(steps[len(steps)-1].Content[0].Text)
	// Output:
	// asked for {"quarter":"Q1"}
	// Q1 is ahead.
}

// The next turn of a conversation goes on with the files and variables of the one before.
func ExampleReuseContainer() {
	saved := "container_1" // Outputs.ContainerID of the last turn, kept with the conversation
	next := anthropic.MessageNewParams{Model: "claude-sonnet-5", MaxTokens: 64000}
	airlock.ReuseContainer(&next, saved)
	fmt.Println(next.Container.OfString.Value)
	// Output: container_1
}

// A job that runs without its user shares what it makes with the app, and the owner of the app pays.
func ExampleWithScope() {
	env, err := airlock.EnvFromOS()
	if err != nil {
		log.Fatal(err)
	}
	files, err := airlock.NewFiles(env, airlock.WithScope(airlock.ScopeApp))
	if err != nil {
		log.Fatal(err)
	}
	for file, err := range files.All(context.Background()) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(file.ID)
	}
	// Output: file_out
}

// Tokens of a minute last through a turn of an hour: the source is asked on every attempt.
func ExampleWithTokenSource() {
	env, err := airlock.EnvFromOS()
	if err != nil {
		log.Fatal(err)
	}
	fresh := airlock.WithTokenSource(func(context.Context) (string, error) {
		return "a token of this minute", nil // such as one from the login server
	})
	files, err := airlock.NewFiles(env, fresh)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := files.Get(context.Background(), "file_of_another_user"); airlock.IsNotFound(err) {
		fmt.Println("not found")
	}
	// Output: not found
}
