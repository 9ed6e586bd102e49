package container_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// What a server would have in its environment; no code may see it.
	if err := os.Setenv("AIRLOCK_TEST_MARKER", "from-the-server"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}
