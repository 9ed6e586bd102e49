package drivers

import (
	"context"
	"strings"
	"testing"

	"github.com/airlock-sandbox/airlock/internal/sandbox"
)

func TestDriversAreFoundByName(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"native", "auto"} {
		d, err := New(name, Options{Host: sandbox.Host{ID: "drivers", LeaseDir: t.TempDir()}})
		if err != nil {
			t.Fatal(err)
		}
		if d.Name() != "native" {
			t.Errorf("%s became %s", name, d.Name())
		}
		if err := d.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}
}

func TestUnknownDriverNamesTheKnownOnes(t *testing.T) {
	t.Parallel()
	_, err := New("docker", Options{})
	if err == nil || !strings.Contains(err.Error(), "auto or native") {
		t.Errorf("got %v", err)
	}
}
