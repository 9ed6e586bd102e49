package walls

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Tmpfs is the size of one tmpfs. Both limits are always set: without nr_inodes empty files are free.
type Tmpfs struct {
	Bytes  int64
	Inodes int64
}

// maxMessage bounds what either side reads before it trusts anything.
const maxMessage = 256 << 10

// MaxMounts bounds the descriptors that travel with one message.
const MaxMounts = 16

// ErrTooLong is a message beyond the bounds, of either side.
var ErrTooLong = errors.New("setup message is too long")

// Encode makes a message of anything that JSON can carry.
func Encode(v any) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode setup: %w", err)
	}
	if len(body) > maxMessage {
		return nil, ErrTooLong
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...), nil
}

// ReadStatus reads the answer to a message: nil when the process is confined, else what went wrong inside.
func ReadStatus(r io.Reader) error {
	text, err := ReadFrame(r)
	if err != nil {
		return fmt.Errorf("read setup status: %w", err)
	}
	if len(text) > 0 {
		return RefusedError(text)
	}
	return nil
}

// RefusedError is the reason that the program inside gave for not going on. One that was killed gives none.
type RefusedError string

func (e RefusedError) Error() string { return "setup inside: " + string(e) }

// WriteStatus answers a message: nil for success.
func WriteStatus(w io.Writer, failure error) error {
	var text string
	if failure != nil {
		text = failure.Error()
	}
	_, err := w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...))
	return err
}

// ReadFrame reads one frame and not a byte more: what follows belongs to the guest's own protocol.
func ReadFrame(r io.Reader) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxMessage {
		return nil, ErrTooLong
	}
	body := make([]byte, n)
	_, err := io.ReadFull(r, body)
	return body, err
}
