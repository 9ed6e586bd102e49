package attack

import (
	"errors"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func TestCoresWithSeveralThreadsAreNamedOnce(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		lists map[string]string
		want  []string
	}{
		"one thread each": {map[string]string{"cpu0": "0\n", "cpu1": "1\n"}, nil},
		"pairs":           {map[string]string{"cpu0": "0,2\n", "cpu1": "1,3\n", "cpu2": "0,2\n", "cpu3": "1,3\n"}, []string{"0,2", "1,3"}},
		"a range":         {map[string]string{"cpu0": "0-1\n", "cpu1": "0-1\n", "cpu2": "2\n"}, []string{"0-1"}},
	} {
		files := fstest.MapFS{}
		for cpu, list := range tt.lists {
			files[cpu+"/topology/thread_siblings_list"] = &fstest.MapFile{Data: []byte(list)}
		}
		got, err := sharedThreadLists(files)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if d := cmp.Diff(got, tt.want); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
	if _, err := sharedThreadLists(fstest.MapFS{}); !errors.Is(err, ErrNotTried) {
		t.Errorf("a kernel that says nothing: %v", err)
	}
}
