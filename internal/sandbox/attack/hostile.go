package attack

import (
	"encoding/binary"
	"errors"
	"io"
	"net"

	"github.com/airlock-sandbox/airlock/internal/sandbox/guest"
)

// hostileGuest is what a guest could become that the code inside has taken
// over: it greets as it should and then answers each frame as its script says.
type hostileGuest struct {
	conn net.Conn
	w    *guest.Writer
	done chan struct{}
}

// answer is one reply of a hostile guest to the first frame of a call.
type hostileAnswer func(g *hostileGuest, f *guest.Frame) error

// startHostile returns the host's connection to a hostile guest.
func startHostile(answer hostileAnswer) (*guest.Conn, *hostileGuest) {
	ours, theirs := net.Pipe()
	g := &hostileGuest{conn: theirs, w: guest.NewWriter(theirs), done: make(chan struct{})}
	go g.run(answer)
	return guest.NewConn(ours, guest.Options{}), g
}

func (g *hostileGuest) run(answer hostileAnswer) {
	defer close(g.done)
	defer g.conn.Close()
	r := guest.NewReader(g.conn)
	for {
		f, err := r.Read()
		if err != nil {
			return
		}
		switch f.Type {
		case guest.TypeHello:
			err = g.w.Write(&guest.Frame{Type: guest.TypeReady, N: guest.Version})
		case guest.TypeExec, guest.TypeCell, guest.TypeGet, guest.TypePut, guest.TypeList, guest.TypeStat, guest.TypePing:
			err = answer(g, f)
		default: // the rest begins no call that a row looks at: no answer
		}
		if err != nil {
			return
		}
	}
}

// raw writes a frame whose parts need not fit together.
func (g *hostileGuest) raw(length uint32, body string) error {
	head := binary.BigEndian.AppendUint32(nil, length)
	_, err := g.conn.Write(append(head, body...))
	return err
}

// errEnough ends a guest that has sent without end and was not stopped.
var errEnough = errors.New("sent without end")

// flood sends frames until the host hangs up; the number is far beyond what
// any window allows.
func (g *hostileGuest) flood(frames int, f *guest.Frame) error {
	for range frames {
		if err := g.w.Write(f); err != nil {
			return io.EOF
		}
	}
	return errEnough
}
