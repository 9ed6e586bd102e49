package server

import (
	"testing"
)

// Beside a running server: the count is what `airlock rootfs rm` refuses with.
func TestContainersOnARootFileSystemAreCountedBesideTheServer(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	count := func(image string) int {
		t.Helper()
		n, err := ContainersOn(t.Context(), &cfg, image)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := count(cfg.Sandbox.RootFS); n != 0 {
		t.Errorf("%d without a database", n)
	}
	s := start(t, cfg)
	first, second := s.container(s.key), s.container(s.key)
	if n := count(cfg.Sandbox.RootFS); n != 2 {
		t.Errorf("%d of two containers", n)
	}
	if n := count("other"); n != 0 {
		t.Errorf("%d on an image that none was made from", n)
	}
	for _, id := range []string{first, second} {
		if got := s.status("DELETE", "/airlock/v1/containers/"+id, s.key, nil); got != 200 {
			t.Fatalf("delete: %d", got)
		}
	}
	if n := count(cfg.Sandbox.RootFS); n != 0 {
		t.Errorf("%d after both were deleted", n)
	}
}
