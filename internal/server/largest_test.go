package server

import (
	"strings"
	"testing"
)

func TestLargestAppsAreNamedByWhatTheyKeep(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	if all, err := LargestApps(t.Context(), &cfg); err != nil || len(all) != 0 {
		t.Errorf("without a database: %v, %v", all, err)
	}
	s := start(t, cfg)
	s.json("POST", s.AdminURL()+"/airlock/v1/apps", s.AdminKey(), map[string]any{"name": "small"}, 200, nil)
	small := s.newKey("small")
	s.upload(small, "a", "tiny")
	s.upload(s.key, "b", strings.Repeat("b", 5000))
	id := s.container(s.key)
	before, err := LargestApps(t.Context(), &cfg)
	if err != nil || len(before) != 2 || before[0] != (AppSize{"default", 5000}) || before[1] != (AppSize{"small", 4}) {
		t.Fatalf("%v, %v", before, err)
	}
	s.exec(s.key, id, map[string]any{"command": "head -c 1000000 /dev/urandom > f; sync"})
	if after, err := LargestApps(t.Context(), &cfg); err != nil || after[0].Name != "default" || after[0].Bytes < 1_000_000 {
		t.Errorf("with a workspace: %v, %v", after, err)
	}
}
