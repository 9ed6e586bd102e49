package server

import (
	"testing"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
)

// What a sandbox costs is the driver's knowledge.
func TestAdmissionCountsTheShareOfTheDriver(t *testing.T) {
	t.Parallel()
	a, err := (&Sandbox{}).admission(sandbox.Host{}, sandbox.Capabilities{ShareBytes: 7 << 20})
	if err != nil || a.Share != 7<<20 {
		t.Errorf("%+v, %v", a, err)
	}
}
