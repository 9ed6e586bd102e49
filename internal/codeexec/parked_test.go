package codeexec

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/airlock-sandbox/airlock/internal/claude"
	"github.com/airlock-sandbox/airlock/internal/sandbox"
)

// pad is a container whose cells are functions of the test.
type pad struct {
	broken
	id     string
	code   func(ctx context.Context, call func(uint64, ...string) []string) string
	run    *padRun // the newest
	kept   *padRun
	wait   time.Duration
	due    func(context.Context, place)
	resume error // what Resume says
	export func(context.Context) error
}

type padRun struct {
	done   chan struct{}
	cancel context.CancelCauseFunc
	err    error
}

func (r *padRun) Done() <-chan struct{} { return r.done }

func (r *padRun) Result() (sandbox.CellResult, error) { return sandbox.CellResult{}, r.err }

func (r *padRun) End(cause error) { r.cancel(cause) }

func (p *pad) ID() string { return p.id }

func (p *pad) Export(ctx context.Context, id string) ([]string, []string, error) {
	if p.export != nil {
		if err := p.export(ctx); err != nil {
			return nil, nil, err
		}
	}
	return p.broken.Export(ctx, id)
}

// Begin runs the function of the test; call makes calls of the tool "ask" with the given texts together, and returns what they
// return, or "raise: what" for an exception.
func (p *pad) Begin(ctx context.Context, c sandbox.Cell, ended func()) (running, error) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	r := &padRun{done: make(chan struct{}), cancel: cancel}
	p.run = r
	call := func(first uint64, texts ...string) []string {
		var calls []sandbox.ToolCall
		for i, s := range texts {
			calls = append(calls, sandbox.ToolCall{ID: first + uint64(i), Name: "ask", Input: json.RawMessage(s)})
		}
		said := make([]string, len(texts))
		for _, a := range c.Call(ctx, calls) {
			s := a.Text
			if a.Raise != "" {
				s = a.Raise + ": " + a.Text
			}
			said[a.ID-first] = s
		}
		return said
	}
	go func() {
		defer close(r.done)
		out := p.code(ctx, call)
		_, _ = c.Stdout.Write([]byte(out))
		if r.err = context.Cause(ctx); r.err != nil && !errors.Is(r.err, context.Canceled) {
			r.err = fmt.Errorf("cell: %w", r.err)
		}
		ended()
	}()
	return r, nil
}

func (p *pad) Park(r running, wait time.Duration, _ bool, due func(context.Context, place)) {
	p.kept, p.wait, p.due = r.(*padRun), wait, due
}

func (p *pad) Resume(context.Context, running) error { p.kept = nil; return p.resume }

func (p *pad) EndParked(_ context.Context, cause error) error {
	if r := p.kept; r != nil {
		p.kept = nil
		r.End(cause)
		<-r.done
	}
	return nil
}

// over lets the time of the parked run be over.
func (p *pad) over(t *testing.T) {
	t.Helper()
	if p.kept == nil {
		t.Fatal("nothing is parked")
	}
	p.due(t.Context(), p)
}

// caller runs cells on a pad.
type caller struct {
	*Runner
	*pad
}

func newCaller(t *testing.T, code func(ctx context.Context, call func(uint64, ...string) []string) string) *caller {
	t.Helper()
	f, err := NewFunction("tools.1", tool(t, "ask", `{"type":"object","properties":{"q":{"type":"string"}},"required":["q"]}`))
	if err != nil {
		t.Fatal(err)
	}
	p := &pad{id: "container_01pad", code: code}
	t.Cleanup(func() {
		if p.run != nil {
			p.run.End(context.Canceled)
			<-p.run.done
		}
	})
	return &caller{&Runner{Version: V20260120, Functions: []Function{f}, Parked: &Parked{}}, p}
}

func tool(t *testing.T, name, schema string) *claude.Node {
	t.Helper()
	n, err := claude.Parse([]byte(schema))
	if err != nil {
		t.Fatal(err)
	}
	return claude.NewObject("name", name, "input_schema", n)
}

var cellCall = Call{ID: "srvtoolu_01cell", Name: ToolCell, Input: claude.NewObject("code", "x")}

// start runs the cell to its first wait or its end.
func (c *caller) start(t *testing.T) Step {
	t.Helper()
	s, err := c.Runner.run(t.Context(), c.pad, cellCall)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// answers say the same to all calls of a step.
func answers(s Step, text string) []Answer {
	var out []Answer
	for _, u := range s.Pending {
		out = append(out, Answer{ID: u.ID, Text: text + u.Input.Get("q").Str()})
	}
	return out
}

func (c *caller) goOn(t *testing.T, a []Answer) Step {
	t.Helper()
	k, err := c.continueIn(c.pad, cellCall, a)
	if err != nil {
		t.Fatal(err)
	}
	s, err := k.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ended gives the output of a step that is a result.
func ended(t *testing.T, s Step) string {
	t.Helper()
	if s.Result == nil {
		t.Fatalf("no result: %d calls wait", len(s.Pending))
	}
	if c := s.Result.Get("content"); c.Get("error_code") != nil {
		return c.Get("error_code").Str()
	}
	return s.Result.At("content", "stdout").Str()
}

func asking(questions ...string) func(context.Context, func(uint64, ...string) []string) string {
	return func(_ context.Context, call func(uint64, ...string) []string) string {
		var said []string
		for i, q := range questions {
			said = append(said, call(uint64(i), `{"q":"`+q+`"}`)...)
		}
		return strings.Join(said, ",")
	}
}

func TestCallsWaitForTheClientOneAfterAnother(t *testing.T) {
	t.Parallel()
	var questions []string
	for i := range 50 {
		questions = append(questions, fmt.Sprint("q", i))
	}
	c := newCaller(t, asking(questions...))
	s := c.start(t)
	seen := map[string]bool{}
	for _, q := range questions {
		if len(s.Pending) != 1 || s.Pending[0].Name != "ask" || s.Pending[0].Input.Text() != `{"q":"`+q+`"}` || seen[s.Pending[0].ID] {
			t.Fatalf("at %s: %+v", q, s.Pending)
		}
		seen[s.Pending[0].ID] = true
		if c.kept != c.pad.run || c.wait != DefaultToolWait {
			t.Fatalf("parked %v for %v", c.kept, c.wait)
		}
		s = c.goOn(t, answers(s, "a"))
	}
	if got := ended(t, s); got != "a"+strings.Join(questions, ",a") {
		t.Errorf("output %q", got)
	}
}

func TestCallsOfOneGroupAreAnsweredTogetherInAnyOrder(t *testing.T) {
	t.Parallel()
	c := newCaller(t, func(_ context.Context, call func(uint64, ...string) []string) string {
		var all []string
		for i := range 20 {
			all = append(all, fmt.Sprintf(`{"q":"%d"}`, i))
		}
		return strings.Join(call(7, all...), ",")
	})
	s := c.start(t)
	if len(s.Pending) != 20 {
		t.Fatalf("%d calls wait", len(s.Pending))
	}
	a := answers(s, "")
	a[0], a[19] = a[19], a[0]
	if got := ended(t, c.goOn(t, a)); got != "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19" {
		t.Errorf("output %q", got)
	}
}

func TestInputThatDoesNotFitTheSchemaRaisesAndIsNotShown(t *testing.T) {
	t.Parallel()
	c := newCaller(t, func(_ context.Context, call func(uint64, ...string) []string) string {
		alone := call(0, `{"q":1}`)
		mixed := call(1, `{}`, `{"q":"good"}`, `[]`, `{"q":"x","n":1e999999}`)
		return strings.Join(append(alone, mixed...), "\n")
	})
	s := c.start(t)
	if len(s.Pending) != 1 || s.Pending[0].Input.Get("q").Str() != "good" {
		t.Fatalf("the client is asked %+v", s.Pending)
	}
	lines := strings.Split(ended(t, c.goOn(t, answers(s, "very "))), "\n")
	for i, want := range []string{
		"ToolError: ask: the input does not fit the tool's input_schema: at '/q': got number, want string",
		"ToolError: ask: the input does not fit the tool's input_schema: at '': missing property 'q'",
		"very good", "ToolError: ask: the input is no JSON object",
		"ToolError: ask: the input does not fit the tool's input_schema: the number 1e999999 is out of range",
	} {
		if i >= len(lines) || lines[i] != want {
			t.Fatalf("got %q, want %q in line %d", lines, want, i)
		}
	}
}

func TestResultWithIsErrorIsTextUnlessTheSettingRaisesIt(t *testing.T) {
	t.Parallel()
	for raise, want := range map[bool]string{false: "broke", true: "ToolError: broke"} {
		c := newCaller(t, asking("x"))
		c.Parked.RaiseErrors = raise
		s := c.start(t)
		if got := ended(t, c.goOn(t, []Answer{{ID: s.Pending[0].ID, Text: "broke", IsError: true}})); got != want {
			t.Errorf("raise %v: %q, want %q", raise, got, want)
		}
	}
}

// The rows of the security list about results: identical, changed, late, and of another container.
func TestS60CodeSeesAtMostOneResult(t *testing.T) {
	t.Parallel()
	c := newCaller(t, asking("one", "two"))
	first := c.start(t)
	second := c.goOn(t, answers(first, "a "))
	// An identical repeat feeds nothing and gives what the code has come to.
	if again := c.goOn(t, answers(first, "a ")); len(again.Pending) != 1 || again.Pending[0].ID != second.Pending[0].ID {
		t.Errorf("the repeat gives %+v", again)
	}
	if _, err := c.continueIn(c.pad, cellCall, answers(first, "other ")); err == nil || !strings.Contains(err.Error(), "other content") {
		t.Errorf("a changed answer: %v", err)
	}
	if _, err := c.continueIn(c.pad, cellCall, []Answer{{ID: "toolu_unknown"}}); err == nil || !strings.Contains(err.Error(), "unexpected `tool_use_id` found in `tool_result` blocks") {
		t.Errorf("an unknown id: %v", err)
	}
	if _, err := c.continueIn(c.pad, cellCall, append(answers(first, "a "), answers(second, "a ")...)); err == nil {
		t.Error("answers to two groups at once were taken")
	}
	elsewhere := &pad{id: "container_01other"}
	if _, err := c.continueIn(elsewhere, Call{ID: "srvtoolu_01else", Name: ToolCell}, answers(second, "a ")); err == nil || !strings.Contains(err.Error(), "unexpected `tool_use_id` found in `tool_result` blocks") {
		t.Errorf("an id of another container: %v", err)
	}
	if got := ended(t, c.goOn(t, answers(second, "a "))); got != "a one,a two" {
		t.Errorf("output %q", got)
	}
	if got := ended(t, c.goOn(t, answers(second, "a "))); got != "a one,a two" {
		t.Errorf("repeat of the last: %q", got)
	}
}

func TestStoredResponseBelongsToItsAnswers(t *testing.T) {
	t.Parallel()
	c := newCaller(t, asking("one", "two"))
	s := c.start(t)
	for _, text := range []string{"first", "second"} {
		k, err := c.continueIn(c.pad, cellCall, answers(s, text))
		if err != nil || k.Stored() != nil {
			t.Fatalf("before the response: %v, %v", k.Stored(), err)
		}
		next, err := k.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		k.Keep([]*claude.Node{claude.NewString(text)})
		again, err := c.continueIn(c.pad, cellCall, answers(s, text))
		if err != nil || len(again.Stored()) != 1 || again.Stored()[0].Str() != text {
			t.Fatalf("stored %v, %v", again.Stored(), err)
		}
		again.Keep([]*claude.Node{claude.NewString(strings.Repeat("x", maxStored))})
		if len(again.Stored()) != 1 || again.Stored()[0].Str() != text {
			t.Error("a response of more than the limit was stored")
		}
		s = next
	}
}

func TestTimeOverRaisesTimeoutErrorAndTheOutcomeIsKept(t *testing.T) {
	t.Parallel()
	c := newCaller(t, asking("one", "two"))
	c.Parked.Wait = 30 * time.Second
	first := c.start(t)
	c.over(t)
	// The code went on to its next call, which a late client is given.
	late := c.goOn(t, answers(first, "late "))
	if len(late.Pending) != 1 || late.Pending[0].Input.Get("q").Str() != "two" {
		t.Fatalf("late: %+v", late)
	}
	if got := ended(t, c.goOn(t, answers(late, "a "))); got != "TimeoutError: Calling tools ['ask'] timed out after 30 seconds.,a two" {
		t.Errorf("output %q", got)
	}
	// Whatever a late result says is ignored.
	if got := ended(t, c.goOn(t, answers(first, "later "))); !strings.Contains(got, "a two") {
		t.Errorf("later: %q", got)
	}
}

func TestCodeThatNobodyAnswersTwiceIsEnded(t *testing.T) {
	t.Parallel()
	c := newCaller(t, asking("one", "two", "three"))
	s := c.start(t)
	c.over(t)
	c.over(t)
	if c.kept != nil {
		t.Error("it is parked still")
	}
	<-c.pad.run.done
	if got := ended(t, c.goOn(t, answers(s, "late"))); got != string(CodeUnavailable) {
		t.Errorf("got %q", got)
	}
}

func TestCallThatIsNotKnownHereIsUnavailable(t *testing.T) {
	t.Parallel()
	c := newCaller(t, asking("one"))
	s := c.start(t)
	c.Parked = &Parked{} // as after a restart
	if got := ended(t, c.goOn(t, answers(s, "a"))); got != string(CodeUnavailable) {
		t.Errorf("got %q", got)
	}
}

func TestAnotherCellEndsTheOneThatWaits(t *testing.T) {
	t.Parallel()
	c := newCaller(t, asking("one"))
	s := c.start(t)
	before := c.pad.run
	other := Call{ID: "srvtoolu_02cell", Name: ToolCell, Input: claude.NewObject("code", "x")}
	if next, err := c.Runner.run(t.Context(), c.pad, other); err != nil || len(next.Pending) != 1 {
		t.Fatalf("%+v, %v", next, err)
	}
	select {
	case <-before.done:
	default:
		t.Fatal("the first cell runs on")
	}
	if got := ended(t, c.goOn(t, answers(s, "a"))); got != string(CodeUnavailable) {
		t.Errorf("the answer to the first gives %q", got)
	}
}

func TestSandboxThatIsGoneIsUnavailable(t *testing.T) {
	t.Parallel()
	c := newCaller(t, asking("one"))
	s := c.start(t)
	c.resume = fmt.Errorf("x: %w", sandbox.ErrGone)
	c.pad.run.End(sandbox.ErrGone)
	if got := ended(t, c.goOn(t, answers(s, "a"))); got != string(CodeUnavailable) {
		t.Errorf("got %q", got)
	}
}

// A client that goes away ends the code, but for code that was given answers: nobody can give them again.
func TestClientThatGoesAway(t *testing.T) {
	t.Parallel()
	gone, leave := context.WithCancel(t.Context())
	entered, release := make(chan struct{}, 2), make(chan struct{})
	c := newCaller(t, func(ctx context.Context, call func(uint64, ...string) []string) string {
		entered <- struct{}{}
		said := call(0, `{"q":"one"}`)[0]
		entered <- struct{}{}
		select {
		case <-release:
		case <-ctx.Done():
			return "killed"
		}
		return said
	})
	s := c.start(t)
	<-entered
	k, err := c.continueIn(c.pad, cellCall, answers(s, "a "))
	if err != nil {
		t.Fatal(err)
	}
	go func() { <-entered; leave() }()
	if _, err := k.Next(gone); !errors.Is(err, context.Canceled) {
		t.Fatalf("Next: %v", err)
	}
	if c.kept == nil || c.wait != 0 {
		t.Fatalf("parked %v for %v", c.kept, c.wait)
	}
	close(release)
	if got := ended(t, c.goOn(t, answers(s, "a "))); got != "a one" {
		t.Errorf("the retry gives %q", got)
	}

	busy := newCaller(t, func(ctx context.Context, _ func(uint64, ...string) []string) string {
		entered <- struct{}{}
		<-ctx.Done()
		return "killed"
	})
	gone, leave = context.WithCancel(t.Context())
	go func() { <-entered; leave() }()
	if _, err := busy.Runner.run(gone, busy.pad, cellCall); !errors.Is(err, context.Canceled) || busy.kept != nil {
		t.Errorf("first request: %v, parked %v", err, busy.kept)
	}
	<-busy.pad.run.done
}

func TestEndedExecutionsAreForgotten(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	k := &Parked{Now: func() time.Time { return now }}
	var last *caller
	end := func(id string) {
		last = newCaller(t, asking("x"))
		last.Parked, last.id = k, id
		last.goOn(t, answers(last.start(t), "a"))
	}
	end("container_1")
	now = now.Add(keepEnded)
	end("container_2")
	if len(k.byKey) != 1 || len(k.byUse) != 1 || k.ended.Len() != 1 {
		t.Errorf("%d executions, %d calls, %d ended are known", len(k.byKey), len(k.byUse), k.ended.Len())
	}
	k.grown(k.byKey[key{"container_2", cellCall.ID}], maxEndedBytes)
	if len(k.byKey) != 0 || len(k.byUse) != 0 || k.bytes != 0 {
		t.Errorf("%d executions, %d calls, %d bytes are known", len(k.byKey), len(k.byUse), k.bytes)
	}
	end("container_3")
	end("container_3") // the same name again
	if len(k.byKey) != 1 || len(k.byUse) != 1 || k.ended.Len() != 1 {
		t.Errorf("%d executions, %d calls, %d ended are known", len(k.byKey), len(k.byUse), k.ended.Len())
	}
}

func TestSchemasThatCannotBeChecked(t *testing.T) {
	t.Parallel()
	deep := `{"$defs":{"d0":{"type":"string"}`
	for i := range 20 {
		deep += fmt.Sprintf(`,"d%d":{"anyOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]}`, i+1, i, i)
	}
	deep += `},"$ref":"#/$defs/d20"}`
	for name, tt := range map[string]struct{ schema, want string }{
		"no object":       {`"string"`, "a JSON schema is required"},
		"circle":          {`{"$ref":"#"}`, "Circular $ref detected"},
		"circle below":    {`{"properties":{"a":{"$ref":"#/$defs/n"}},"$defs":{"n":{"properties":{"next":{"$ref":"#/$defs/n"}}}}}`, "Circular $ref detected"},
		"circle by name":  {`{"$defs":{"n":{"$anchor":"n","items":{"$ref":"#n"}}},"$ref":"#n"}`, "Circular $ref detected"},
		"a file":          {`{"$ref":"file:///etc/passwd"}`, "only references within the schema are possible"},
		"a host":          {`{"$ref":"https://example.com/x"}`, "only references within the schema are possible"},
		"another schema":  {`{"$schema":"file:///etc/passwd"}`, "no JSON schema that can be used"},
		"nothing there":   {`{"$ref":"#/$defs/x"}`, "names nothing in it"},
		"id below":        {`{"properties":{"a":{"$id":"x"}}}`, "$id can stand at its top only"},
		"doubling":        {deep, "more than 10000 parts"},
		"unknown type":    {`{"type":"text"}`, "no JSON schema that can be used"},
		"pattern":         {`{"properties":{"a":{"pattern":"(?=x)"}}}`, "no JSON schema that can be used"},
		"long pattern":    {`{"properties":{"a":{"pattern":"` + strings.Repeat("a", maxPattern+1) + `"}}}`, "a pattern in it is too large"},
		"repeats":         {`{"properties":{"a":{"pattern":"` + strings.Repeat("(?:.[a-c]{1,500}){2}", 21) + `"}}}`, "a pattern in it is too large"},
		"name of members": {`{"patternProperties":{"` + strings.Repeat(".{1000}", 21) + `":{}}}`, "a pattern in it is too large"},
		"unused patterns": {`{"$defs":{"a":{"pattern":"` + strings.Repeat("a", maxPattern+1) + `"}}}`, "a pattern in it is too large"},
		"many patterns":   {`{"$defs":{` + patternsOf(maxPrograms/1000+1, 1000) + `}}`, "a pattern in it is too large"},
		"large classes":   {`{"$defs":{` + patternsOf(12, 0) + `}}`, "a pattern in it is too large"},
		"many parts":      {`{"enum":[` + strings.Repeat("0,", 10_000) + `0]}`, "more than 10000 parts"},
		"many references": {`{"allOf":[` + strings.Repeat(`{"$ref":"#z"},`, 200) + `{"$anchor":"z","enum":[` + strings.Repeat("0,", 100) + `0]}]}`, "more than 10000 parts"},
		"number of bytes": {`{"properties":{"a":{"multipleOf":1e100000}}}`, "out of range"},
	} {
		_, err := NewFunction("tools.3", tool(t, "ask", tt.schema))
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "tools.3.input_schema: ") || strings.Contains(err.Error(), "root:") {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

// patternsOf gives definitions of different patterns of n steps; 0 is as many letters of any script as a pattern can name.
func patternsOf(many, n int) string {
	var all []string
	for i := range many {
		p := fmt.Sprintf("%d.{%d}", i, n)
		if n == 0 {
			p = fmt.Sprint(i) + strings.Repeat(`\\pL`, 1300)
		}
		all = append(all, fmt.Sprintf(`"d%d":{"pattern":"%s"}`, i, p))
	}
	return strings.Join(all, ",")
}

func TestSchemasThatAreTaken(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{
		`{}`, `{"type":"object","properties":{"$ref":{"type":"string"},"$id":{"type":"string"}}}`,
		`{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","additionalProperties":false}`,
		`{"$schema":"https://json-schema.org/draft/2020-12/schema","$defs":{"a":{"type":"string"}},"properties":{"x":{"$ref":"#/$defs/a"},"y":{"$ref":"#/$defs/a"}}}`,
		`{"enum":[{"$ref":"#"}],"default":{"$ref":"x"}}`,
		`{"properties":{"a":{"pattern":"^\\p{L}[\\p{L}\\p{N}_-]{0,99}$"},"b":{"pattern":"^(?:.{1,60}){0,16}$"}}}`,
		`{"$defs":{` + patternsOf(maxPrograms/1003, 1000) + `}}`,
	} {
		if _, err := NewFunction("tools.0", tool(t, "ask", schema)); err != nil {
			t.Errorf("%s: %v", schema, err)
		}
	}
}

func TestInputThatTakesTooLongToCheckIsRefused(t *testing.T) {
	t.Parallel()
	var many strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&many, `{"const":%d},`, i)
	}
	f, err := NewFunction("tools.0", tool(t, "ask", `{"properties":{"a":{"items":{"anyOf":[`+many.String()+`{"type":"string"}]}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	large, err := claude.Parse([]byte(`{"a":[` + strings.Repeat("1,", 40_000) + `1]}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := f.check.check(large); got != "it is too large to be checked against the tool's input_schema" {
		t.Errorf("got %q", got)
	}
}

func TestFunctionsAreDescribedInOrderBehindEverythingElse(t *testing.T) {
	t.Parallel()
	var all []Function
	for _, name := range []string{"b", "get-rate", "import", "3d"} {
		n := tool(t, name, `{"type": "object"}`)
		n.Set("description", claude.NewString("Does "+name+"."))
		f, err := NewFunction("tools.0", n)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, f)
	}
	text := func(o Offer) string {
		tools := o.Tools(Library{}, Limits{})
		return tools[len(tools)-1].Get("description").Str()
	}
	plain, with := text(Offer{Version: V20260120}), text(Offer{V20260120, all})
	rest, ok := strings.CutPrefix(with, plain)
	if !ok || !strings.Contains(rest, "async function taking one dict and returning a string") {
		t.Errorf("the description is %q", with)
	}
	_, list, _ := strings.Cut(rest, "need to know.\n\n")
	want := "b\nDescription: Does b.\nInput schema: {\"type\":\"object\"}\n\n" +
		"get_rate\nName: get-rate\nDescription: Does get-rate.\nInput schema: {\"type\":\"object\"}\n\n" +
		"tools[\"import\"]\nName: import\nDescription: Does import.\nInput schema: {\"type\":\"object\"}\n\n" +
		"tools[\"3d\"]\nName: 3d\nDescription: Does 3d.\nInput schema: {\"type\":\"object\"}"
	if list != want {
		t.Errorf("the list is %q, want %q", list, want)
	}
	if got := (Offer{V20250825, all}); !got.Offers(ToolCell) || got.Caller() != "code_execution_20250825" {
		t.Errorf("20250825 offers %v, its caller is %s", got.SubTools(), got.Caller())
	}
	if (Offer{Version: V20250825}).Offers(ToolCell) || (Offer{Version: V20260521}).Caller() != "code_execution_20260120" {
		t.Error("cells or caller are wrong")
	}
}

// The schema is one party's and the input another's; neither may make the server work or remember without bounds.
func TestInputsThatTakeTooMuchToCheckAreRefused(t *testing.T) {
	t.Parallel()
	text := func(n int) string { return `{"q":"` + strings.Repeat("a", n) + `"}` }
	for name, tt := range map[string]struct{ schema, input, want string }{
		"a pattern that branches": {`{"properties":{"q":{"pattern":"^(?:a?){900}b$"}}}`, text(1 << 20), "too large to be checked"},
		"names with a pattern":    {`{"patternProperties":{"^(?:a?){900}b$":{}}}`, text(1 << 20), "too large to be checked"},
		"many values":             {`{"properties":{"q":{"items":{"type":"string","minLength":1}}}}`, `{"q":[` + strings.Repeat("0,", 300_000) + `0]}`, "too large to be checked"},
		"a text as a pattern":     {`{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"q":{"format":"regex"}}}`, text(maxPattern + 1), "is not valid regex"},
		"a bad pattern":           {`{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"q":{"format":"regex"},"r":{"format":"regex"}}}`, `{"q":"^a+$","r":"("}`, "'(' is not valid regex"},
		"every check fails":       {`{"properties":{"q":{"allOf":[` + strings.Repeat(`{"pattern":"^x"},`, 500) + `{}]}}}`, text(4000), "does not match pattern"},
	} {
		f, err := NewFunction("tools.0", tool(t, "ask", tt.schema))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		input, err := claude.Parse([]byte(tt.input))
		if err != nil {
			t.Fatal(err)
		}
		if got := f.check.check(input); !strings.Contains(got, tt.want) || len(got) > maxComplaint+3 {
			t.Errorf("%s: %d bytes, %.200q", name, len(got), got)
		}
	}
	f, err := NewFunction("tools.0", tool(t, "ask", `{"properties":{"q":{"type":"string","pattern":"^[a-z]+$"}},"required":["q"],"additionalProperties":false}`))
	if err != nil {
		t.Fatal(err)
	}
	input, err := claude.Parse([]byte(text(1<<20 - 100)))
	if err != nil {
		t.Fatal(err)
	}
	if got := f.check.check(input); got != "" {
		t.Errorf("a long text: %s", got)
	}
}

// The client goes away just as the output files are taken. Fails if the end of the code is lost with it: nobody can give the
// answers again.
func TestClientThatGoesAwayAtTheEndLosesNothing(t *testing.T) {
	t.Parallel()
	c := newCaller(t, asking("x"))
	s := c.start(t)
	gone, leave := context.WithCancel(t.Context())
	c.export = func(ctx context.Context) error {
		leave()
		return ctx.Err()
	}
	k, err := c.continueIn(c.pad, cellCall, answers(s, "a "))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Next(gone); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if got := ended(t, c.goOn(t, answers(s, "a "))); got != "a x" {
		t.Errorf("the retry gives %q", got)
	}
}

// What has ended is remembered for its result; the inputs, answers and schemas of its calls are not.
func TestEndedExecutionsHoldNeitherInputsNorAnswers(t *testing.T) {
	t.Parallel()
	c := newCaller(t, asking("x"))
	s := c.start(t)
	x, _ := c.parked().find(key{c.ID(), cellCall.ID}, c.Owner(), nil)
	c.goOn(t, answers(s, "a "))
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.runner.Functions != nil || x.c.Input != nil {
		t.Errorf("it holds %v and %v", x.runner.Functions, x.c.Input)
	}
	for _, g := range x.groups {
		if g.answers != nil || g.uses[0].Input != nil {
			t.Errorf("a group holds %v and %v", g.answers, g.uses)
		}
	}
}
