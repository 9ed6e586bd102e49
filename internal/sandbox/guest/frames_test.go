package guest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func frameBytes(tb testing.TB, frames ...*Frame) []byte {
	tb.Helper()
	var b bytes.Buffer
	w := NewWriter(&b)
	for _, f := range frames {
		if err := w.Write(f); err != nil {
			tb.Fatal(err)
		}
	}
	return b.Bytes()
}

func raw(body string) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
	return append(b, body...)
}

func TestFramesRoundTripAnyBytes(t *testing.T) {
	t.Parallel()
	frames := []*Frame{
		{Type: TypeHello, Hello: &Hello{Version: 1, Env: [][]byte{[]byte("A=\xff\x00\n")}}, Payload: []byte{}},
		{Type: TypeData, ID: 1 << 63, Stream: 2, Payload: []byte("\n\x00\xff\n")},
		{Type: TypeExec, ID: 2, Exec: &ExecSpec{Argv: [][]byte{[]byte("a\xc3"), {}}, Output: -1}, Payload: []byte{}},
		{Type: TypePut, ID: 3, File: &FileSpec{Path: []byte("/\xff\n<&>")}, Payload: []byte{}},
		{Type: TypeExit, ID: 4, Exit: &Exit{Code: 137, Signal: 9, Dropped: [2]int64{1, 2}}, Payload: []byte{}},
	}
	r := NewReader(bytes.NewReader(frameBytes(t, frames...)))
	for i, want := range frames {
		got, err := r.Read()
		if err != nil {
			t.Fatalf("frame %d: %v", i, err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("frame %d (-want +got):\n%s", i, d)
		}
	}
	if _, err := r.Read(); !errors.Is(err, io.EOF) {
		t.Errorf("got %v at the end", err)
	}
}

func TestReaderRefusesMalformedFrames(t *testing.T) {
	t.Parallel()
	whole := frameBytes(t, &Frame{Type: TypePing, ID: 1, Payload: []byte("x")})
	tests := []struct {
		name string
		in   []byte
		want error
	}{
		{"empty", nil, io.EOF},
		{"part of the length", whole[:2], io.ErrUnexpectedEOF},
		{"length alone", whole[:4], io.ErrUnexpectedEOF},
		{"part of the body", whole[:len(whole)-1], io.ErrUnexpectedEOF},
		{"zero length", []byte{0, 0, 0, 0}, ErrProtocol},
		{"length one", []byte{0, 0, 0, 1, '\n'}, ErrProtocol},
		{"one too long", binary.BigEndian.AppendUint32(nil, MaxFrame+1), ErrProtocol},
		{"longest number", []byte{255, 255, 255, 255}, ErrProtocol},
		{"no newline", raw(`{"t":"ping"}`), ErrProtocol},
		{"no JSON", raw("hello\n"), ErrProtocol},
		{"no object", raw("[]\n"), ErrProtocol},
		{"no type", raw("{}\n"), ErrProtocol},
		{"null", raw("null\n"), ErrProtocol},
		{"negative id", raw(`{"t":"ping","i":-1}` + "\n"), ErrProtocol},
		{"wrong kind", raw(`{"t":7}` + "\n"), ErrProtocol},
		{"deep", raw(`{"t":"ping","x":` + strings.Repeat("[", 100_000) + "\n"), ErrProtocol},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := NewReader(bytes.NewReader(tt.in)).Read(); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

func TestWriterSendsNothingOfATooLargeFrame(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	w := NewWriter(&b)
	if err := w.Write(&Frame{Type: TypeCode, Payload: make([]byte, MaxFrame)}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("got %v", err)
	}
	if b.Len() != 0 {
		t.Errorf("%d bytes were sent", b.Len())
	}
	if err := w.Write(&Frame{Type: TypePing}); err != nil {
		t.Error(err)
	}
	if f, err := NewReader(&b).Read(); err != nil || f.Type != TypePing {
		t.Errorf("got %v, %v", f, err)
	}
}

func FuzzReader(f *testing.F) {
	f.Add(frameBytes(f, &Frame{Type: TypeData, ID: 1, Stream: 1, Payload: []byte("abc")}, &Frame{Type: TypeExit, ID: 1, Exit: &Exit{}}))
	f.Add(frameBytes(f, &Frame{Type: TypeExec, ID: 1, Exec: &ExecSpec{Argv: [][]byte{[]byte("x")}}}))
	f.Add(raw(`{"t":"ready","n":1}` + "\n"))
	f.Add([]byte{255, 255, 255, 255, 0})
	f.Fuzz(func(t *testing.T, in []byte) {
		r := NewReader(bytes.NewReader(in))
		for {
			got, err := r.Read()
			if err != nil {
				if !errors.Is(err, ErrProtocol) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Fatalf("unexpected error %v", err)
				}
				return
			}
			// What was read can be written, and means the same.
			again, err := NewReader(bytes.NewReader(frameBytes(t, got))).Read()
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(got, again); d != "" {
				t.Fatalf("changed (-first +second):\n%s", d)
			}
		}
	})
}
