package messages

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/airlock-sandbox/airlock/internal/claude"
)

// TestGolden runs each testdata/*.txtar: a request, the upstream's answers as
// frames, the contents of tool results, and the frames that are wanted, all
// compared after normalising. A part "upstream.N.want" is the N-th body that the
// upstream must be sent.
func TestGolden(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(names) == 0 {
		t.Fatalf("no testdata: %v", err)
	}
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			t.Parallel()
			golden(t, name)
		})
	}
}

func golden(t *testing.T, name string) {
	a, err := txtar.ParseFile(name)
	if err != nil {
		t.Fatal(err)
	}
	part := func(n string) string {
		for _, f := range a.Files {
			if f.Name == n {
				return string(f.Data)
			}
		}
		return ""
	}
	var answers []answer
	for i := 1; part("upstream."+strconv.Itoa(i)+".sse") != ""; i++ {
		answers = append(answers, answer{sse: part("upstream." + strconv.Itoa(i) + ".sse")})
	}
	b := newBench(t, answers...)
	b.Library = testLibrary()
	b.store = shelf{"file_011InputCsv0000000000001": {ID: "file_011InputCsv0000000000001", Filename: "data.csv", MIME: "text/csv", Size: 30}}
	for i := 1; part("result."+strconv.Itoa(i)+".json") != ""; i++ {
		b.boxes.results = append(b.boxes.results, parse(t, part("result."+strconv.Itoa(i)+".json")))
	}
	w := b.post(t, part("request.json"))
	if w.Code != 200 {
		t.Fatalf("answer %d %s", w.Code, w.Body)
	}
	got := events(t, w.Body.Bytes())
	checkStream(t, got)
	if *update && part("want.sse") == "" {
		a.Files = append(a.Files, txtar.File{Name: "want.sse", Data: w.Body.Bytes()})
		if err := os.WriteFile(name, txtar.Format(a), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff(normal(t, got), normal(t, events(t, []byte(part("want.sse"))))); d != "" {
		t.Errorf("the stream differs (-got +want):\n%s", d)
	}
	for i, sent := range b.model.bodies() {
		want := part("upstream." + strconv.Itoa(i+1) + ".want")
		if want == "" {
			continue
		}
		if d := cmp.Diff(sorted(t, sent), sorted(t, parse(t, want))); d != "" {
			t.Errorf("request %d to the upstream differs (-got +want):\n%s", i+1, d)
		}
	}
	// The plain form of the same request adds up to the same message, but for citations that are null.
	b2 := newBench(t, answers...)
	b2.store = b.store
	for i := 1; part("result."+strconv.Itoa(i)+".json") != ""; i++ {
		b2.boxes.results = append(b2.boxes.results, parse(t, part("result."+strconv.Itoa(i)+".json")))
	}
	plain := parse(t, part("request.json"))
	plain.Delete("stream")
	w = b2.post(t, plain.Text())
	whole := strings.ReplaceAll(sorted(t, sum(t, got)), `"citations":null,`, "")
	if d := cmp.Diff(replaceIDs(sorted(t, parse(t, w.Body.String()))), replaceIDs(whole)); d != "" {
		t.Errorf("the plain message differs from the stream's sum (-plain +stream):\n%s", d)
	}
}

// checkStream asserts the rules that hold for every stream.
func checkStream(t *testing.T, all []*claude.Node) {
	t.Helper()
	starts, stops, next := 0, 0, int64(0)
	var block *claude.Node
	input := ""
	for _, e := range all {
		switch e.Type() {
		case "message_start":
			starts++
		case "message_stop":
			stops++
		case "content_block_start":
			if i, _ := e.Get("index").Int(); i != next {
				t.Errorf("block index %d, want %d", i, next)
			}
			next++
			block, input = e.Get("content_block"), ""
		case "content_block_delta":
			p := e.At("delta", "partial_json").Str()
			if block.Type() == "server_tool_use" && input == "" && p != "" && (!strings.HasPrefix(p, "{") || p == "{}") {
				t.Errorf("the first delta that is not empty is %q", p)
			}
			input += p
		case "content_block_stop":
			if input != "" {
				if len(block.Get("input").Members) > 0 {
					t.Error("input stands in the start and in deltas")
				}
				if _, err := claude.Parse([]byte(input)); err != nil {
					t.Errorf("the deltas join to %q: %v", input, err)
				}
			}
		}
	}
	if starts != 1 || stops != 1 {
		t.Errorf("%d message_start and %d message_stop", starts, stops)
	}
}
