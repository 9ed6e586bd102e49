package direct

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// deadlines is a client whose deadlines are written down.
type deadlines struct {
	*httptest.ResponseRecorder
	read, write []bool // of each: whether one was set, not taken back
}

func (d *deadlines) SetReadDeadline(t time.Time) error {
	d.read = append(d.read, !t.IsZero())
	return nil
}

func (d *deadlines) SetWriteDeadline(t time.Time) error {
	d.write = append(d.write, !t.IsZero())
	return nil
}

func TestUnblockedClientsConnectionCarriesNoOtherRequest(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		unblock     func(context.Context, http.ResponseWriter) func()
		late        time.Duration // of the end of the turn, after that of its context
		read, write []bool
		closed      string
	}{
		"reads":           {unblockReads, unblockGrace + 1, []bool{true, false}, nil, "close"},
		"writes":          {unblockWrites, unblockGrace + 1, nil, []bool{true, false}, "close"},
		"reads, in time":  {unblockReads, unblockGrace - 1, nil, nil, ""},
		"writes, in time": {unblockWrites, unblockGrace - 1, nil, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				d := &deadlines{ResponseRecorder: httptest.NewRecorder()}
				stop := tt.unblock(ctx, d)
				cancel()
				<-time.After(tt.late)
				stop()
				if !slices.Equal(d.read, tt.read) || !slices.Equal(d.write, tt.write) || d.Header().Get("Connection") != tt.closed {
					t.Errorf("read %v, write %v, connection %q", d.read, d.write, d.Header().Get("Connection"))
				}
			})
		})
	}
}
