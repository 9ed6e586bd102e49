package guest

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// part is a frame of a call, or of a piece of it.
func part(id, call uint64, tool int, input string, more bool) *Frame {
	return &Frame{Type: TypeTool, ID: id, Tool: &ToolPart{Call: call, Tool: tool, More: more}, Payload: []byte(input)}
}

// lastPart is a frame of the last call of a group.
func lastPart(id, call uint64, tool int, input string) *Frame {
	f := part(id, call, tool, input, false)
	f.EOF = true
	return f
}

// twoTools offers two tools, and answers with what it is given.
func twoTools() Cell {
	return Cell{Code: "x", Tools: []string{"a", "b-c"}, Call: func(_ context.Context, calls []ToolCall) []ToolAnswer {
		var answers []ToolAnswer
		for _, k := range calls {
			answers = append(answers, ToolAnswer{ID: k.ID, Text: k.Name + string(k.Input)})
		}
		return answers
	}}
}

func TestToolsThatPythonCannotTellApartAreRefused(t *testing.T) {
	t.Parallel()
	c, d := connect(t, Options{})
	go d.swallow()
	call := twoTools().Call
	for name, cell := range map[string]Cell{
		"nobody answers": {Tools: []string{"a"}},
		"empty":          {Tools: []string{""}, Call: call},
		"twice":          {Tools: []string{"a", "a"}, Call: call},
		"same in Python": {Tools: []string{"a-b", "a_b"}, Call: call},
		"no text":        {Tools: []string{"a\xff"}, Call: call},
		"control":        {Tools: []string{"a\n"}, Call: call},
		"long":           {Tools: []string{strings.Repeat("a", maxToolName+1)}, Call: call},
	} {
		if _, err := c.Cell(t.Context(), cell); !errors.Is(err, ErrInvalidPath) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// collect reads answers up to the end of their group.
func (d *double) collect() map[uint64]ToolAnswer {
	got := map[uint64]ToolAnswer{}
	for {
		f, err := d.r.Read()
		if err != nil || f.Type != TypeAnswer && f.Type != TypeCredit {
			d.t.Errorf("double: got %+v, %v, want an answer", f, err)
			return got
		}
		if f.Type == TypeCredit {
			continue
		}
		if f.Tool != nil {
			a := got[f.Tool.Call]
			got[f.Tool.Call] = ToolAnswer{ID: f.Tool.Call, Text: a.Text + string(f.Payload), Raise: f.Tool.Raise}
		}
		d.send(&Frame{Type: TypeCredit, ID: f.ID, N: f.Cost()})
		if f.EOF {
			return got
		}
	}
}

func TestCallsComeInGroupsAndAreAnswered(t *testing.T) {
	t.Parallel()
	c, d := connect(t, Options{})
	big := strings.Repeat("x", 3*Window)
	answered := make(chan []map[uint64]ToolAnswer, 1)
	go func() {
		f := d.expect(TypeCell)
		if strings.Join(f.Cell.Tools, " ") != "a b-c" {
			t.Errorf("the guest is told of %q", f.Cell.Tools)
		}
		d.send(part(f.ID, 1, 1, `{"a":`, true))
		d.send(part(f.ID, 1, 1, `1}`, false))
		d.send(lastPart(f.ID, 2, 0, `{}`))
		first := d.collect()
		d.send(lastPart(f.ID, 3, 0, `{}`))
		answered <- []map[uint64]ToolAnswer{first, d.collect()}
		d.send(&Frame{Type: TypeExit, ID: f.ID, Exit: &Exit{Code: 7}})
	}()
	cell := twoTools()
	plain := cell.Call
	cell.Call = func(ctx context.Context, calls []ToolCall) []ToolAnswer {
		answers := plain(ctx, calls)
		if calls[0].ID == 3 {
			return []ToolAnswer{{ID: 9, Text: "unknown"}, {ID: 3, Text: big, Raise: RaiseTool}, {ID: 3, Text: "twice"}}
		}
		return answers
	}
	res, err := c.Cell(t.Context(), cell)
	if err != nil || res.Code != 7 {
		t.Errorf("got %+v, %v", res, err)
	}
	got := <-answered
	if len(got[0]) != 2 || got[0][1].Text != `b-c{"a":1}` || got[0][2].Text != "a{}" || got[0][1].Raise != "" {
		t.Errorf("the first group got %v", got[0])
	}
	if len(got[1]) != 1 || got[1][3].Text != big || got[1][3].Raise != RaiseTool {
		t.Errorf("the second group got %d answers of %d bytes", len(got[1]), len(got[1][3].Text))
	}
}

// TestThreat55HostileGuestCannotForgeCalls: what no guest of ours says ends the connection, and calls nothing.
func TestThreat55HostileGuestCannotForgeCalls(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		plain  bool // the cell has no tools
		attack func(d *double, id uint64)
	}{
		{"call without tools", true, func(d *double, id uint64) { d.send(part(id, 1, 0, "{}", false)) }},
		{"end without tools", true, func(d *double, id uint64) { d.send(&Frame{Type: TypeTool, ID: id, EOF: true}) }},
		{"empty group", false, func(d *double, id uint64) { d.send(&Frame{Type: TypeTool, ID: id, EOF: true}) }},
		{"group with half a call", false, func(d *double, id uint64) {
			f := part(id, 1, 0, "{", true)
			f.EOF = true
			d.send(f)
		}},
		{"no content", false, func(d *double, id uint64) { d.send(&Frame{Type: TypeTool, ID: id}) }},
		{"unknown tool", false, func(d *double, id uint64) { d.send(part(id, 1, 2, "{}", false)) }},
		{"negative tool", false, func(d *double, id uint64) { d.send(part(id, 1, -1, "{}", false)) }},
		{"number zero", false, func(d *double, id uint64) { d.send(part(id, 0, 0, "{}", false)) }},
		{"number of the future", false, func(d *double, id uint64) { d.send(part(id, 2, 0, "{}", false)) }},
		{"number repeated", false, func(d *double, id uint64) {
			d.send(part(id, 1, 0, "{}", false))
			d.send(part(id, 1, 0, "{}", false))
		}},
		{"piece of another call", false, func(d *double, id uint64) {
			d.send(part(id, 1, 0, "{", true))
			d.send(part(id, 2, 0, "}", false))
		}},
		{"empty pieces", false, func(d *double, id uint64) { d.send(part(id, 1, 0, "", true)) }},
		{"empty input", false, func(d *double, id uint64) { d.send(part(id, 1, 0, "", false)) }},
		{"input that is no object", false, func(d *double, id uint64) { d.send(part(id, 1, 0, "[]", false)) }},
		{"two objects", false, func(d *double, id uint64) { d.send(part(id, 1, 0, "{}{}", false)) }},
		{"space around", false, func(d *double, id uint64) { d.send(part(id, 1, 0, "{}\n", false)) }},
		{"input that is no JSON", false, func(d *double, id uint64) { d.send(part(id, 1, 0, `{"a":}`, false)) }},
		{"input that is no text", false, func(d *double, id uint64) { d.send(part(id, 1, 0, "{\"a\":\"\xff\"}", false)) }},
		{"input without end", false, func(d *double, id uint64) {
			for range MaxToolInput/MaxData + 1 {
				d.send(part(id, 1, 0, strings.Repeat("x", MaxData), true))
			}
		}},
		{"too many at once", false, func(d *double, id uint64) {
			for n := range uint64(MaxToolPending + 1) {
				d.send(part(id, n+1, 0, "{}", false))
			}
		}},
		{"too large a piece", false, func(d *double, id uint64) { d.send(part(id, 1, 0, strings.Repeat("x", MaxData+1), true)) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, d := connect(t, Options{})
			go func() {
				f := d.expect(TypeCell)
				go d.swallow()
				tt.attack(d, f.ID)
			}()
			cell := twoTools()
			cell.Call = func(context.Context, []ToolCall) []ToolAnswer {
				t.Error("it was called")
				return nil
			}
			if tt.plain {
				cell.Tools, cell.Call = nil, nil
			}
			res, err := c.Cell(t.Context(), cell)
			if !errors.Is(err, ErrProtocol) || res != (CellResult{}) {
				t.Errorf("got %+v, %v", res, err)
			}
		})
	}
}

// TestThreat55HostileGuestCannotHoardInputs: within every other limit, and within the window.
func TestThreat55HostileGuestCannotHoardInputs(t *testing.T) {
	t.Parallel()
	c, d := connect(t, Options{})
	sent := make(chan int, 1)
	go func() {
		id, credit, total := d.expect(TypeCell).ID, int64(Window), 0
		defer func() { d.conn.Close(); sent <- total }()
		x := strings.Repeat("x", MaxData-8)
		for n := range uint64(MaxToolPending) {
			for _, f := range []*Frame{part(id, n+1, 0, `{"a":"`+x, true), part(id, n+1, 0, x, true), part(id, n+1, 0, x+`"}`, false)} {
				for credit -= f.Cost(); credit < 0; {
					back, err := d.r.Read()
					if err != nil {
						return
					}
					credit += back.N
				}
				if d.w.Write(f) != nil {
					return
				}
				total += len(f.Payload)
			}
		}
	}()
	cell := twoTools()
	if _, err := c.Cell(t.Context(), cell); !errors.Is(err, ErrProtocol) {
		t.Errorf("got %v", err)
	}
	if total := <-sent; total > MaxToolInputs+Window {
		t.Errorf("%d bytes were taken", total)
	}
}

// TestThreat55HostileGuestCannotCallWithoutEnd: not more often than allowed, and no group while another is answered.
func TestThreat55HostileGuestCannotCallWithoutEnd(t *testing.T) {
	t.Parallel()
	c, d := connect(t, Options{})
	go func() {
		id := d.expect(TypeCell).ID
		go d.swallow()
		d.send(lastPart(id, 1, 0, "{}"))
		d.send(part(id, 2, 0, "{}", false))
	}()
	groups := 0
	cell := twoTools()
	cell.Call = func(ctx context.Context, _ []ToolCall) []ToolAnswer {
		groups++
		<-ctx.Done()
		return nil
	}
	if _, err := c.Cell(t.Context(), cell); !errors.Is(err, ErrProtocol) || groups != 1 {
		t.Errorf("a second group: %v, %d groups", err, groups)
	}
	c, d = connect(t, Options{})
	go func() {
		id := d.expect(TypeCell).ID
		for n := range uint64(MaxToolCalls + 1) {
			if n%50 != 49 {
				d.send(part(id, n+1, 0, "{}", false))
			} else {
				d.send(lastPart(id, n+1, 0, "{}"))
				if got := d.collect(); len(got) != 50 {
					t.Errorf("%d answers", len(got))
				}
			}
		}
		d.swallow()
	}()
	calls := 0
	cell = twoTools()
	plain := cell.Call
	cell.Call = func(ctx context.Context, group []ToolCall) []ToolAnswer {
		calls += len(group)
		return plain(ctx, group)
	}
	if _, err := c.Cell(t.Context(), cell); !errors.Is(err, ErrProtocol) || calls != MaxToolCalls {
		t.Errorf("calls without end: %v, %d calls", err, calls)
	}
}

// A guest may be frozen for as long as Call blocks, and is missed again as soon as it has returned.
func TestGuestIsNotMissedWhileItsCallIsAnswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, d := connect(t, Options{})
		go func() {
			id := d.expect(TypeCell).ID
			d.send(lastPart(id, 1, 0, "{}"))
			d.collect()
			d.send(lastPart(id, 2, 0, "{}"))
			d.swallow() // silent from here on
		}()
		cell := twoTools()
		groups := 0
		cell.Call = func(ctx context.Context, calls []ToolCall) []ToolAnswer {
			groups++
			if calls[0].ID == 1 {
				<-time.After(time.Hour)
			}
			return nil
		}
		began := time.Now()
		_, err := c.Cell(t.Context(), cell)
		if !errors.Is(err, ErrGone) || !errors.Is(err, os.ErrDeadlineExceeded) || groups != 2 {
			t.Errorf("got %v after %d groups", err, groups)
		}
		if took := time.Since(began); took < time.Hour+20*time.Second || took > time.Hour+time.Minute {
			t.Errorf("given up after %s", took)
		}
	})
}

// One that does not react to a cancellation is given up, also while Call blocks.
func TestCancelEndsACallAndMissesAFrozenGuest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, d := connect(t, Options{})
		go func() {
			id := d.expect(TypeCell).ID
			d.send(lastPart(id, 1, 0, "{}"))
			d.swallow()
		}()
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("the client went away")
		cell := twoTools()
		cell.Call = func(ctx context.Context, _ []ToolCall) []ToolAnswer {
			cancel(cause)
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), cause) {
				t.Errorf("the cause is %v", context.Cause(ctx))
			}
			return nil
		}
		if _, err := c.Cell(ctx, cell); !errors.Is(err, ErrGone) || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

func TestCellThatEndsEndsItsCall(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*Conn, *double, uint64){
		"exit":    func(_ *Conn, d *double, id uint64) { d.send(&Frame{Type: TypeExit, ID: id, Exit: &Exit{Code: 3}}) },
		"hang-up": func(_ *Conn, d *double, _ uint64) { d.conn.Close() },
		"close":   func(c *Conn, _ *double, _ uint64) { c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, d := connect(t, Options{})
			entered, id := make(chan struct{}), make(chan uint64, 1)
			go func() {
				f := d.expect(TypeCell)
				go d.swallow()
				d.send(lastPart(f.ID, 1, 0, "{}"))
				id <- f.ID
			}()
			go func() {
				<-entered
				if n := c.Running(); n != 1 {
					t.Errorf("%d calls run, want 1", n)
				}
				end(c, d, <-id)
			}()
			left := false
			cell := twoTools()
			cell.Call = func(ctx context.Context, calls []ToolCall) []ToolAnswer {
				close(entered)
				<-ctx.Done()
				left = true
				return []ToolAnswer{{ID: calls[0].ID, Text: "too late"}}
			}
			var out bytes.Buffer
			cell.Stdout = &out
			res, err := c.Cell(t.Context(), cell)
			if !left || c.Running() != 0 {
				t.Error("Cell returned before its Call")
			}
			if name == "exit" && (err != nil || res.Code != 3) || name != "exit" && !errors.Is(err, ErrGone) {
				t.Errorf("got %+v, %v", res, err)
			}
		})
	}
}
