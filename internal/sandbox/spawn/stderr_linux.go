package spawn

import (
	"os"
	"strings"
	"sync"
)

// stderrKeep is how much of the guest's last words is kept; the rest is read and dropped, so that a guest which writes
// without end blocks nothing and fills nothing.
const stderrKeep = 4 << 10

// LastWords reads what the guest writes outside its protocol: the runtime's message when it crashes.
type LastWords struct {
	done chan struct{}

	mu   sync.Mutex // guards last
	last []byte
}

// Open starts the reader and returns the end for the child. The reader ends when no process holds it any more.
func (s *LastWords) Open() (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	s.done = make(chan struct{})
	go s.read(r)
	return w, nil
}

func (s *LastWords) read(r *os.File) {
	defer close(s.done)
	defer r.Close()
	buf := make([]byte, 1024)
	for {
		n, err := r.Read(buf)
		s.mu.Lock()
		s.last = append(s.last, buf[:n]...)
		if extra := len(s.last) - stderrKeep; extra > 0 {
			s.last = append(s.last[:0], s.last[extra:]...)
		}
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Wait returns when everything has been read; the child must have ended.
func (s *LastWords) Wait() {
	if s.done != nil {
		<-s.done
	}
}

// Tail is safe to log: one line, printable characters only.
func (s *LastWords) Tail() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t':
			return ' '
		case r < ' ', r == 0x7f:
			return -1
		}
		return r
	}, strings.ToValidUTF8(string(s.last), "?")))
}
