package server

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/airlock-sandbox/airlock/internal/wire"
)

func TestGateWaitsForRunningTurnsAndRefusesNewOnes(t *testing.T) {
	t.Parallel()
	var g gate
	for range 2 {
		if !g.enter() {
			t.Fatal("an open gate refused")
		}
	}
	empty := g.close()
	if g.enter() {
		t.Error("a closed gate let a turn in")
	}
	g.leave()
	select {
	case <-empty:
		t.Fatal("empty while a turn runs")
	default:
	}
	g.leave()
	<-empty
	<-g.close()
}

func TestBodyOfExactlyTheLimitPasses(t *testing.T) {
	t.Parallel()
	for size, ok := range map[int]bool{9: true, 10: true, 11: false} {
		b, err := io.ReadAll(limitBody(io.NopCloser(strings.NewReader(strings.Repeat("x", size))), 10))
		if (err == nil) != ok {
			t.Errorf("%d bytes: %v", size, err)
		}
		var e *wire.Error
		if err != nil && (!errors.As(err, &e) || e.HTTPStatus() != http.StatusRequestEntityTooLarge || len(b) > 10) {
			t.Errorf("%d bytes: %v after %d", size, err, len(b))
		}
	}
}
