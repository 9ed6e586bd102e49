package messages

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/airlock-sandbox/airlock/internal/claude"
	"github.com/airlock-sandbox/airlock/internal/codeexec"
	"github.com/airlock-sandbox/airlock/internal/tenant"
	"github.com/airlock-sandbox/airlock/internal/upstream"
	"github.com/airlock-sandbox/airlock/internal/wire"
)

// turn is one response under way.
type turn struct {
	s     *Service
	req   *request
	e     *upstream.Endpoint
	place place
	files loaded
	out   *sink
	usage usage
	again continuation // code that waited for this request, nil = none did

	usageStart, usageDelta *claude.Node // of the upstream answer under way
	ids                    map[string]bool
	sampled                int // answers of the upstream
}

// create serves one Messages request.
func (s *Service) create(ctx context.Context, c tenant.Caller, r *request, to response) error {
	e, err := s.Upstreams.For(r.Model())
	if err != nil {
		return err
	}
	if err := s.enter(c, r, e); err != nil {
		return err
	}
	if err := r.check(); err != nil {
		return err
	}
	// What cannot succeed is refused before this request waits for another turn
	// in the container.
	known, err := s.admit(ctx, c, r)
	if err != nil {
		return err
	}
	leave, patient, err := s.join(ctx, r)
	if err != nil {
		return err
	}
	defer leave() // after all else: the response is kept then
	p, err := s.containers().Acquire(ctx, c, r.container.ID, patient)
	if err != nil {
		return err
	}
	defer p.Release(ctx)
	// Deleting the container ends everything that is done for it, waiting for the
	// model included.
	ctx, cancel := p.Context(ctx)
	defer cancel()
	t := &turn{s: s, req: r, e: e, place: p}
	events, err := t.continues()
	if err != nil {
		return err
	}
	if events != nil {
		p.Release(ctx)
		return replay(events, to)
	}
	if t.files, err = s.loadFiles(ctx, c, r, known, p); err != nil {
		return err
	}
	return t.respond(ctx, to)
}

// join waits for the request that a continuation repeats, if that is still being answered.
func (s *Service) join(ctx context.Context, r *request) (leave func(), patient bool, err error) {
	if r.resumes == "" {
		return func() {}, false, nil
	}
	return s.containers().Join(ctx, r.container.ID, r.deferred[0], r.answers)
}

// continues finds the code that waits for this request. Events are the response that the same request was given before.
func (t *turn) continues() (events []*claude.Node, err error) {
	if t.req.resumes == "" {
		return nil, nil
	}
	if t.again, err = t.place.Continue(t.req.offer(), t.req.deferred[0], t.req.answers); err != nil {
		return nil, err
	}
	return t.again.Stored(), nil
}

// respond answers a request whose container and files are there.
func (t *turn) respond(ctx context.Context, to response) error {
	r := t.req
	if r.version == "" && !r.Stream() {
		return t.plain(ctx, to)
	}
	// A sandbox that cannot be had is told with a status and not in the middle
	// of a stream, as far as it is known that one is needed.
	if r.version != "" && (r.container.ID != "" || len(r.deferred) > 0) {
		if err := t.place.Open(ctx); err != nil {
			return err
		}
	}
	t.out = newSink(to.stream, cmp.Or(t.s.PingEvery, DefaultPingEvery))
	t.out.keep = t.again != nil
	defer t.out.stop()
	return t.answer(ctx, to)
}

// plain relays a request that needs neither code nor a stream, as it is.
func (t *turn) plain(ctx context.Context, to response) error {
	m, err := t.e.Message(ctx, t.s.call(t.req, nil, t.files))
	if err != nil {
		return err
	}
	t.place.Release(ctx)
	if shown := t.place.Shown(); shown != nil {
		m.Set("container", shown)
	}
	return to.json(m)
}

// answer runs the loop and ends the response.
func (t *turn) answer(ctx context.Context, to response) error {
	err := t.loop(ctx)
	t.out.stop()
	if err == nil && t.again != nil {
		t.again.Keep(t.out.kept)
	}
	switch {
	case err == nil && t.out.stream != nil:
		return nil
	case err == nil:
		return to.json(withoutNullCitations(t.out.sum.Message()))
	case t.out.stream == nil || !t.out.begun():
		return err
	}
	// The status is gone; the error is logged here because nobody else sees it.
	t.s.log().WarnContext(ctx, "stream ended with an error", "request_id", wire.RequestID(ctx), "error", err)
	// A client that left cancels without a cause of its own; a shutdown has one.
	if ctx.Err() == nil || !errors.Is(context.Cause(ctx), context.Canceled) {
		if err := t.out.fail(ctx, err); err != nil {
			t.s.log().InfoContext(ctx, "client left before the error", "error", err)
		}
	}
	return nil
}

// replay answers with a response that was given before.
func replay(events []*claude.Node, to response) error {
	out := newSink(to.stream, time.Hour)
	defer out.stop()
	for _, e := range events {
		if err := out.send(e); err != nil {
			return err
		}
	}
	if to.stream != nil {
		return nil
	}
	return to.json(withoutNullCitations(out.sum.Message()))
}

// withoutNullCitations takes off what the start of a text block has in a stream: of a whole message, AI SDK 6 takes a list or
// nothing.
func withoutNullCitations(m *claude.Node) *claude.Node {
	for _, b := range m.Get("content").Elems() {
		if emptyCitations(b) {
			b.Delete("citations")
		}
	}
	return m
}

// loop asks the upstream and runs the calls of its answers until one answer
// ends the response.
func (t *turn) loop(ctx context.Context) error {
	if waits, err := t.runDeferred(ctx); err != nil || waits {
		return err
	}
	limit := cmp.Or(t.s.MaxIterations, DefaultMaxIterations)
	for i := 1; ; i++ {
		rep, err := t.ask(ctx)
		if err != nil {
			return err
		}
		switch {
		case len(rep.calls) == 0 || !runnable(rep.stop):
			return t.finish(ctx, rep.stop, rep.delta)
		case rep.clients > 0:
			// One group of our calls and the client's: nothing runs until the
			// client has answered, and then ours run first.
			return t.pause(ctx, "tool_use")
		case i >= limit:
			return t.pause(ctx, "pause_turn")
		}
		if waits, err := t.runAll(ctx, rep.calls); err != nil || waits {
			return err
		}
	}
}

// runAll runs calls one after another. When the code of one waits for the client the response ends there (waits), and the
// calls behind it run in the next one.
func (t *turn) runAll(ctx context.Context, calls []codeexec.Call) (waits bool, err error) {
	for _, c := range calls {
		step, err := t.run(ctx, c)
		if err != nil {
			return false, err
		}
		if waits, err := t.came(ctx, c, step); err != nil || waits {
			return waits, err
		}
	}
	return false, nil
}

// came shows what has come of a call, and ends the response if its code waits.
func (t *turn) came(ctx context.Context, c codeexec.Call, step codeexec.Step) (waits bool, err error) {
	if err := t.show(c, step); err != nil || len(step.Pending) == 0 {
		return false, err
	}
	return true, t.finish(ctx, "tool_use", nil)
}

// show sends what has come of a call: its result, or the tools that its code waits for.
func (t *turn) show(c codeexec.Call, step codeexec.Step) error {
	if step.Result != nil {
		return t.out.block(len(t.out.sum.Blocks()), step.Result)
	}
	for _, b := range t.uses(c, step) {
		if err := t.out.block(len(t.out.sum.Blocks()), b); err != nil {
			return err
		}
	}
	return nil
}

// uses are the tools that the code of a call waits for.
func (t *turn) uses(c codeexec.Call, step codeexec.Step) []*claude.Node {
	var blocks []*claude.Node
	for _, u := range step.Pending {
		blocks = append(blocks, claude.NewObject("type", "tool_use", "id", u.ID, "name", u.Name, "input", u.Input,
			"caller", claude.NewObject("type", t.req.offer().Caller(), "tool_id", c.ID)))
	}
	return blocks
}

// runnable reports whether the calls of an answer with that stop reason are
// complete. An answer cut by max_tokens may have half a command in it.
func runnable(stop string) bool {
	switch stop {
	case "max_tokens", "refusal", "model_context_window_exceeded", "compaction":
		return false
	}
	return true
}

// ask relays one upstream answer.
func (t *turn) ask(ctx context.Context) (reply, error) {
	first, idle := cmp.Or(t.s.FirstEvent, DefaultFirstEvent), cmp.Or(t.s.Idle, DefaultIdle)
	var made []*claude.Node
	if t.out.sum.Message() != nil {
		// The client has its 200 already, so nothing is won by haste.
		made, first = t.out.sum.Blocks(), idle
	}
	stream, err := t.e.Open(ctx, t.s.call(t.req, made, t.files), first)
	if err != nil {
		return reply{}, err
	}
	defer stream.Close()
	t.usageStart, t.usageDelta = nil, nil
	r := relay{t: t}
	rep, err := r.pump(ctx, stream, first, idle)
	if err != nil {
		return rep, err
	}
	t.usage.add(overlay(t.usageStart, t.usageDelta))
	t.sampled++
	return rep, nil
}

// begin sends message_start for the first upstream answer and hides it for the
// later ones.
func (t *turn) begin(m *claude.Node) error {
	if t.out.sum.Message() != nil {
		return nil
	}
	if t.req.version == "" {
		m = m.Shallow()
		m.Set("content", claude.NewArray())
		if shown := t.place.Shown(); shown != nil {
			m.Set("container", shown)
		}
		return t.out.send(claude.NewObject("type", "message_start", "message", m))
	}
	var first usage
	first.add(m.Get("usage"))
	told := first.start()
	t.usage.startCreated5m, t.usage.startCreate1h = first.created5m, first.created1h
	return t.start(m.Get("id").Str(), m.Get("model").Str(), told)
}

func (t *turn) start(id, model string, told *claude.Node) error {
	return t.out.send(claude.NewObject("type", "message_start", "message", t.opening(id, model, told)))
}

// opening is the message as it stands at its start.
func (t *turn) opening(id, model string, told *claude.Node) *claude.Node {
	if !strings.HasPrefix(id, "msg_") {
		id = wire.NewID("msg")
	}
	if model == "" {
		model = t.req.Model()
	}
	return claude.NewObject("id", id, "type", "message", "role", "assistant", "model", model, "content", claude.NewArray(),
		"stop_reason", nil, "stop_sequence", nil, "stop_details", nil, "container", t.place.Shown(), "usage", told)
}

// runDeferred runs the calls that the continued response left open.
func (t *turn) runDeferred(ctx context.Context) (waits bool, err error) {
	if len(t.req.deferred) == 0 {
		return false, nil
	}
	if t.compact() {
		if waits, err := t.resumeCompact(ctx); err != nil || waits {
			return waits, err
		}
		return t.runAll(ctx, t.req.deferred[1:])
	}
	if err := t.start("", "", (&usage{}).start()); err != nil {
		return false, err
	}
	return t.runAll(ctx, t.req.deferred)
}

// run runs one call, or goes on with the one whose code waited. That one was
// counted by the response in which it began.
func (t *turn) run(ctx context.Context, c codeexec.Call) (codeexec.Step, error) {
	switch {
	case t.again != nil && c.ID == t.req.resumes:
		return t.again.Next(ctx)
	case t.again != nil && t.sampled == 0:
		t.usage.executions++
		return t.behind(ctx, c)
	}
	t.usage.executions++
	return t.place.Run(ctx, t.req.offer(), c)
}

// behind runs a call that stands behind the one whose code waited. It comes to its end also when the client goes away: the
// request will be repeated, and is told what came of it.
func (t *turn) behind(ctx context.Context, c codeexec.Call) (codeexec.Step, error) {
	if ctx.Err() != nil {
		return codeexec.Step{}, context.Cause(ctx)
	}
	own, cancel := t.place.Context(context.WithoutCancel(ctx))
	defer cancel()
	step, err := t.again.Run(own, c)
	if ctx.Err() != nil {
		return codeexec.Step{}, context.Cause(ctx)
	}
	return step, err
}

// pause ends the response with calls of ours unanswered. The container exists
// from then on: its id is what the client continues with.
func (t *turn) pause(ctx context.Context, stop string) error {
	if err := t.place.Ensure(ctx); err != nil {
		return err
	}
	return t.finish(ctx, stop, nil)
}

// finish sends the end of the message. The container's turn ends before, so
// that what the client is told is safe on disk and its next request finds the
// container free.
func (t *turn) finish(ctx context.Context, stop string, from *claude.Node) error {
	t.place.Release(ctx)
	e := claude.NewObject("type", "message_delta", "delta", nil)
	if from != nil {
		e = from.Shallow()
	}
	delta := claude.NewObject()
	if d := e.Get("delta"); d.Is(claude.Object) {
		delta = d.Shallow()
	}
	delta.Set("stop_reason", stopNode(stop))
	shown := t.place.Shown()
	if t.req.version != "" {
		for _, name := range []string{"stop_sequence", "stop_details"} {
			if delta.Get(name) == nil {
				delta.Set(name, claude.NewNull())
			}
		}
		delta.Set("container", claude.NewNull())
		e.Set("usage", t.usage.final())
	}
	if shown != nil {
		delta.Set("container", shown)
	}
	e.Set("delta", delta)
	if err := t.out.send(e); err != nil {
		return err
	}
	return t.out.send(claude.NewObject("type", "message_stop"))
}

func stopNode(stop string) *claude.Node {
	if stop == "" {
		return claude.NewString("end_turn")
	}
	return claude.NewString(stop)
}

// taken reports whether an id stands in the conversation already.
func (t *turn) taken(id string) bool {
	if t.ids == nil {
		t.ids = map[string]bool{}
		for _, m := range t.req.Messages() {
			for _, b := range claude.Blocks(m) {
				t.ids[b.Get("id").Str()] = true
			}
		}
	}
	was := t.ids[id]
	t.ids[id] = true
	return was
}

// call builds the request to the upstream.
func (s *Service) call(r *request, made []*claude.Node, files loaded) upstream.Call {
	body := r.Root.Shallow()
	body.Delete("container")
	if r.touched() || len(files.sources) > 0 {
		body.Set("messages", upstreamMessages(r.Messages(), made, files))
	}
	if system := body.Get("system"); system != nil && len(files.sources) > 0 {
		body.Set("system", files.inline(system))
	}
	if tools := body.Get("tools"); tools.Is(claude.Array) {
		body.Set("tools", upstreamTools(tools.Items, r.offer(), s.Library, s.Limits))
	}
	if choice := body.Get("tool_choice"); choice != nil {
		body.Set("tool_choice", upstreamChoice(choice, r.offer()))
	}
	if !r.counting && r.version != "" {
		body.Set("stream", claude.NewBool(true))
	}
	return upstream.Call{Body: body.Bytes(), Betas: r.betas}
}

// touched reports whether the upstream would not understand the messages as
// they are.
func (r *request) touched() bool {
	if r.version != "" {
		return true
	}
	for _, m := range r.Messages() {
		for _, b := range claude.Blocks(m) {
			if isServerCall(b) || codeexec.IsResultType(b.Type()) || b.Type() == "container_upload" {
				return true
			}
		}
	}
	return false
}

func (s *Service) log() *slog.Logger {
	if s.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return s.Log
}
