package wire

import (
	"fmt"
	"io"
	"net/http"
	"time"
)

const (
	// sendPiece and sendStall bound how slow a client may be: a piece in five minutes. The kernel takes a few MiB ahead of
	// the client, and gives no sign of life until a good part of that has been read, so a shorter limit would cut clients
	// that read slowly and steadily.
	sendPiece = 1 << 20
	sendStall = 5 * time.Minute
)

// Send copies exactly length bytes to the client at the client's speed; a client that stops reading is an error after a
// while. Going piece by piece keeps the limit on silence, and each piece can still be handed to the kernel as a whole.
func Send(w http.ResponseWriter, body io.Reader, length int64) error {
	return send(w, body, length, sendStall)
}

func send(w http.ResponseWriter, body io.Reader, length int64, stall time.Duration) error {
	rc := http.NewResponseController(w)
	for length > 0 {
		n := min(length, sendPiece)
		_ = rc.SetWriteDeadline(time.Now().Add(stall)) // writers without deadlines are test recorders
		if _, err := io.CopyN(w, body, n); err != nil {
			return fmt.Errorf("send body: %w", err)
		}
		length -= n
	}
	_ = rc.SetWriteDeadline(time.Time{}) // the connection may serve further requests
	return nil
}
