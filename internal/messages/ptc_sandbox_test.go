package messages

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/admission"
	"github.com/airlock-sandbox/airlock/internal/claude"
	"github.com/airlock-sandbox/airlock/internal/container"
	"github.com/airlock-sandbox/airlock/internal/tenant"
)

// dialog is a conversation with tools that code may call, as a client leads it.
type dialog struct {
	*whole
	messages  []*claude.Node
	container string
	stream    bool
}

func (w *whole) dialog(content any) *dialog {
	return &dialog{whole: w, messages: []*claude.Node{claude.NewObject("role", "user", "content", content)}}
}

func (k *dialog) body(t *testing.T) *claude.Node {
	b := parse(t, ptcBody("code_execution_20260521", "", ""))
	b.Set("messages", claude.NewArray(k.messages...))
	if k.container != "" {
		b.Set("container", claude.NewString(k.container))
	}
	if k.stream {
		b.Set("stream", claude.NewBool(true))
	}
	return b
}

// send sends the conversation and notes the answer.
func (k *dialog) send(t *testing.T) *claude.Node {
	t.Helper()
	code, m, _ := k.post(t, k.env.Caller, k.body(t))
	if code != 200 {
		t.Fatalf("answered %d %s", code, m.Text())
	}
	k.container = m.At("container", "id").Str()
	k.messages = append(k.messages, claude.NewObject("role", "assistant", "content", m.Get("content")))
	return m
}

// answer gives every call of a message the text "for <pair>".
func (k *dialog) answer(t *testing.T, m *claude.Node) {
	t.Helper()
	results := claude.NewArray()
	for _, b := range m.Get("content").Items {
		if b.Type() == "tool_use" {
			results.Items = append(results.Items, claude.NewObject("type", "tool_result", "tool_use_id", b.Get("id").Str(), "content", "for "+b.At("input", "pair").Str()))
		}
	}
	if len(results.Items) == 0 {
		t.Fatalf("nothing to answer: %s", m.Text())
	}
	k.messages = append(k.messages, claude.NewObject("role", "user", "content", results))
}

func fencedCell(code string) string { return "```cell\n" + code + "\n```" }

const askOne = "r = await get_rate({'pair': 'one'})\nprint(r)"

func TestCodeCallsToolsOfTheClient(t *testing.T) {
	t.Parallel()
	w := newWhole(t)
	k := w.dialog(fencedCell(`import asyncio
for n in range(3):
    print(await get_rate({'pair': str(n)}))
print(await asyncio.gather(*[tools["get-rate"](pair='g' + str(n)) for n in range(20)]))
async def main():
    return await get_rate({'pair': 'run'})
print(asyncio.run(main()))
try:
    await get_rate({'par': 1})
except Exception as e:
    print(type(e).__name__, e)`) + "\nThe end.")
	for _, n := range []int{1, 1, 1, 20, 1} {
		k.stream = !k.stream
		m := k.send(t)
		calls := 0
		for _, b := range m.Get("content").Items {
			if b.Type() == "tool_use" {
				calls++
			}
		}
		if calls != n || m.Get("stop_reason").Str() != "tool_use" {
			t.Fatalf("%d calls wait, want %d: %s", calls, n, m.Text())
		}
		k.answer(t, m)
	}
	m := k.send(t)
	want := "for 0\nfor 1\nfor 2\n['for g0', 'for g1', 'for g2', 'for g3', 'for g4', 'for g5', 'for g6', 'for g7', 'for g8', 'for g9', 'for g10', " +
		"'for g11', 'for g12', 'for g13', 'for g14', 'for g15', 'for g16', 'for g17', 'for g18', 'for g19']\nfor run\n" +
		"ToolError get-rate: the input does not fit the tool's input_schema: at '': missing property 'pair'\n"
	if got := stdout(t, m); got != want {
		t.Errorf("printed %q, want %q", got, want)
	}
	if m.Get("stop_reason").Str() != "end_turn" || !strings.Contains(m.Text(), "The end.") {
		t.Errorf("the last message: %s", m.Text())
	}
}

// The code is written into the container's files, goes on in the same interpreter, and the files of the turn are there.
func TestCase28UploadsAreMountedAndCallsOfCodeAreShownAndCounted(t *testing.T) {
	t.Parallel()
	w := newWhole(t)
	f := w.env.Upload(t, w.env.Caller, "in.txt", "from the file")
	k := w.dialog(claude.NewArray(upload(f), text(fencedCell("import os\nx = open(os.environ['INPUT_DIR'] + '/in.txt').read()\nprint(x, await get_rate({'pair': 'a'}))\n"+
		"_ = open(os.environ['OUTPUT_DIR'] + '/out.txt', 'w').write(x)"))))
	k.stream = true
	m := k.send(t)
	blocks := m.Get("content").Items
	if len(blocks) != 2 || blocks[0].Type() != "server_tool_use" || blocks[1].Type() != "tool_use" {
		t.Fatalf("blocks %s", m.Text())
	}
	if n := m.At("usage", "server_tool_use", "code_execution_requests").Text(); n != "1" {
		t.Errorf("the code is counted %s times", n)
	}
	k.answer(t, m)
	m = k.send(t)
	if got := stdout(t, m); got != "from the file for a\n" || len(outputs(m)[0].Get("content").Elems()) != 1 {
		t.Errorf("the end: %s", m.Text())
	}
	if n := m.At("usage", "server_tool_use", "code_execution_requests").Text(); n != "0" {
		t.Errorf("the code is counted again: %s", n)
	}
}

func TestLateResultGetsWhatTheCodeHasCome(t *testing.T) {
	t.Parallel()
	w := newWhole(t)
	w.Parked.Wait = 20 * time.Second
	k := w.dialog(fencedCell("try:\n    await get_rate({'pair': 'one'})\nexcept TimeoutError as e:\n    print(e)"))
	m := k.send(t)
	if got := m.At("container", "expires_at").Str(); got != "2026-11-29T12:00:50.000000Z" {
		t.Errorf("promised until %s", got)
	}
	w.env.Clock.Add(20 * time.Second)
	w.env.SweepParked(t.Context())
	k.answer(t, m)
	if got := stdout(t, k.send(t)); got != "Calling tools ['get-rate'] timed out after 20 seconds.\n" {
		t.Errorf("printed %q", got)
	}
}

func TestServerThatWasStartedAnewSaysUnavailableAndGoesOn(t *testing.T) {
	t.Parallel()
	w := newWhole(t)
	k := w.dialog(fencedCell("y = 1\n"+askOne) + "\n" + fencedCell("print('again', 'y' in globals())"))
	m := k.send(t)
	k.answer(t, m)
	if err := w.env.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	env := w.env.Restart(t)
	if _, err := env.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	k.whole = &whole{&Service{Files: env.Files, Containers: env.Service, Upstreams: w.Upstreams}, env}
	m = k.send(t)
	results := outputs(m)
	if len(results) != 2 || results[0].Get("error_code").Str() != "unavailable" || results[1].Get("stdout").Str() != "again False\n" ||
		!strings.Contains(results[1].Get("stderr").Str(), "interpreter was restarted") {
		t.Errorf("the turn went on with %s", m.Text())
	}
}

// The same is said when the memory of the sandbox was needed for another while the code waited.
func TestCodeWhoseMemoryWasNeededSaysUnavailableAndTheTurnGoesOn(t *testing.T) {
	t.Parallel()
	w := newWhole(t)
	const share = 1 << 40
	w.env.Admission = &admission.Queue{
		Memory: func() (int64, int64, error) { return share + 1, share + 1, nil }, Reserve: 1, Share: share, Wait: time.Minute,
	}
	k := w.dialog("```bash\necho file > f\n```\n" + fencedCell("y = 1\n"+askOne) + "\n" + fencedCell("print('again', 'y' in globals(), open('f').read())"))
	m := k.send(t)
	k.answer(t, m)
	if got := stdout(t, w.ask(t, "", "```bash\necho other\n```")); got != "other\n" {
		t.Fatalf("the other printed %q", got)
	}
	for range 2 { // the second is the repeat of the first
		m, code := k.body(t), 0
		if code, m, _ = w.post(t, w.env.Caller, m); code != 200 {
			t.Fatalf("answered %d %s", code, m.Text())
		}
		results := outputs(m)
		if len(results) != 2 || results[0].Get("error_code").Str() != "unavailable" || results[1].Get("stdout").Str() != "again False file\n\n" ||
			!strings.Contains(results[1].Get("stderr").Str(), "interpreter was restarted") {
			t.Errorf("the turn went on with %s", m.Text())
		}
	}
}

// Rows S59 and S60: nobody else answers a call, and nothing that came of a foreign attempt changes it.
func TestS59ForeignAnswerIsNotFoundAndTheCallStaysPending(t *testing.T) {
	t.Parallel()
	w := newWhole(t)
	k := w.dialog(fencedCell(askOne))
	m := k.send(t)
	k.answer(t, m)
	other := tenant.Caller{AppID: w.env.Caller.AppID, AppProven: true, UserID: "v", Scope: tenant.ScopeUser}
	for name, c := range map[string]tenant.Caller{"another app": w.env.Other, "another user": other} {
		if code, e, _ := w.post(t, c, k.body(t)); code != 404 || e.At("error", "message").Str() != "Not found" {
			t.Errorf("%s: %d %s", name, code, e.Text())
		}
	}
	// In a container of its own, the ids of another app mean nothing.
	stranger := w.dialog(fencedCell("print(1)"))
	if code, m, _ := w.post(t, w.env.Other, stranger.body(t)); code != 200 {
		t.Fatalf("%d %s", code, m.Text())
	} else {
		stranger.container = m.At("container", "id").Str()
	}
	stranger.messages = k.messages
	if code, m, _ := w.post(t, w.env.Other, stranger.body(t)); code != 200 || outputs(m)[0].Get("error_code").Str() != "unavailable" {
		t.Errorf("answered by a stranger: %d %s", code, m.Text())
	}
	// In another container of the owner they are refused.
	own := w.dialog(fencedCell("print(1)"))
	own.send(t)
	own.messages = k.messages
	if code, e, _ := w.post(t, w.env.Caller, own.body(t)); code != 400 || !strings.Contains(e.At("error", "message").Str(), "unexpected `tool_use_id`") {
		t.Errorf("in another container: %d %s", code, e.Text())
	}
	if got := stdout(t, k.send(t)); got != "for one\n" {
		t.Errorf("the call printed %q", got)
	}
}

// Other requests use the container while code waits in it; one that starts a cell ends what waits.
func TestOtherRequestsInTheContainerOfCodeThatWaits(t *testing.T) {
	t.Parallel()
	w := newWhole(t)
	k := w.dialog(fencedCell("z = 3\n" + askOne))
	m := k.send(t)
	if got := stdout(t, w.ask(t, k.container, "```bash\necho beside\n```")); got != "beside\n" {
		t.Errorf("bash beside it printed %q", got)
	}
	k.answer(t, m)
	first := *k
	if got := stdout(t, k.send(t)); got != "for one\n" {
		t.Errorf("the code printed %q", got)
	}
	again := w.dialog(fencedCell(askOne))
	again.container = k.container
	m = again.send(t)
	again.answer(t, m)
	if got := stdout(t, w.ask(t, k.container, fencedCell("print(z)"))); got != "3\n" {
		t.Errorf("the other cell printed %q", got)
	}
	if m := again.send(t); outputs(m)[0].Get("error_code").Str() != "unavailable" {
		t.Errorf("the cell that was ended gives %s", m.Text())
	}
	if got := stdout(t, first.send(t)); got != "for one\n" {
		t.Errorf("a repeat of the first continuation printed %q", got)
	}
}

func TestDeletingAContainerWithCodeThatWaits(t *testing.T) {
	t.Parallel()
	w := newWhole(t)
	k := w.dialog(fencedCell(askOne))
	m := k.send(t)
	k.answer(t, m)
	if err := w.env.Delete(t.Context(), w.env.Caller, container.ID(k.container)); err != nil {
		t.Fatal(err)
	}
	if code, e, _ := w.post(t, w.env.Caller, k.body(t)); code != 404 || e.At("error", "message").Str() != "Not found" {
		t.Errorf("%d %s", code, e.Text())
	}
}

// Two of the same request at once: a client whose connection was lost has sent it again before the server noticed. Fails if
// the second is refused as busy, or if anything runs twice.
func TestRepeatGetsTheResponseOfTheRequestThatIsAtWork(t *testing.T) {
	t.Parallel()
	w := newWhole(t)
	w.env.BusyWait = -1
	k := w.dialog("```parallel\n```\n" + fencedCell("import time\nr = await get_rate({'pair': 'one'})\ntime.sleep(0.5)\nprint(r)") +
		"\n```bash\necho ran >> f\n```\n```end\n```\n```bash\ncat f\n```")
	k.answer(t, k.send(t))
	body := k.body(t)
	got := make(chan *claude.Node, 2)
	for range 2 {
		go func() {
			_, m, _ := w.post(t, w.env.Caller, body)
			got <- m
		}()
	}
	first, second := <-got, <-got
	if first.Text() != second.Text() || stdout(t, first) != "for one\nran\n" {
		t.Errorf("the answers are\n%s\n%s", first.Text(), second.Text())
	}
	changed := k.body(t)
	changed.Get("messages").Items[2].Get("content").Items[0].Set("content", claude.NewString("changed"))
	if code, e, _ := w.post(t, w.env.Caller, changed); code != 400 || !strings.Contains(e.Text(), "answered before with other content") {
		t.Errorf("other content: %d %s", code, e.Text())
	}
}

// The connection is lost while code works on answers: it goes on in a turn of its own, for which the repeat waits.
func TestRepeatWaitsForCodeThatGoesOnByItself(t *testing.T) {
	t.Parallel()
	w := newWhole(t)
	w.env.BusyWait = -1
	k := w.dialog(fencedCell("import time\nr = await get_rate({'pair': 'one'})\nopen('f', 'a').write('ran')\ntime.sleep(1)\nprint(r, open('f').read())"))
	k.answer(t, k.send(t))
	w.lose(t, k.body(t), "message_start")
	w.env.SweepParked(t.Context()) // it has the turn now
	if got := stdout(t, k.send(t)); got != "for one ran\n" {
		t.Errorf("printed %q", got)
	}
}

// The connection is lost while a call behind the continued code runs. Fails if the call is cut off or runs once more.
func TestCallBehindContinuedCodeOutlivesTheConnectionAndRunsOnce(t *testing.T) {
	t.Parallel()
	w := newWhole(t)
	w.env.BusyWait = -1
	k := w.dialog("```parallel\n```\n" + fencedCell(askOne) +
		"\n```bash\necho begun >> f; sleep 1; echo ended >> f; cat f\n```\n```end\n```\n```bash\nwc -l < f\n```")
	k.answer(t, k.send(t))
	w.lose(t, k.body(t), "code_execution_tool_result")
	if got := stdout(t, k.send(t)); got != "for one\nbegun\nended\n2\n" {
		t.Errorf("printed %q", got)
	}
}

// lose sends a request as a stream and loses the connection at the first ping after a frame with this word: while what comes
// next is at work. It returns when the server has done with the request.
func (w *whole) lose(t *testing.T, body *claude.Node, after string) {
	t.Helper()
	w.PingEvery = 50 * time.Millisecond
	body.Set("stream", claude.NewBool(true))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := &cut{ResponseRecorder: httptest.NewRecorder(), after: after, cut: cancel}
	err := w.Create(c, httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/messages", strings.NewReader(body.Text())), w.env.Caller)
	if ctx.Err() == nil {
		t.Fatalf("the request came to its end: %v %s", err, c.Body)
	}
}

// cut is a client that is lost.
type cut struct {
	*httptest.ResponseRecorder
	after string
	seen  bool
	cut   func()
}

func (c *cut) Write(p []byte) (int, error) {
	switch {
	case strings.Contains(string(p), c.after):
		c.seen = true
	case c.seen && strings.Contains(string(p), "event: ping"):
		c.cut()
	}
	return c.ResponseRecorder.Write(p)
}
