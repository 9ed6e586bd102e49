package native

import "testing"

func TestFilterAssemblesForEveryArchitecture(t *testing.T) {
	t.Parallel()
	for _, goarch := range []string{"amd64", "arm64"} {
		p, err := filter(goarch)
		if err != nil {
			t.Fatal(err)
		}
		t.Log(goarch, len(p)/8)
		if n := len(p) / 8; n > 4096 {
			t.Errorf("%s: %d instructions, the kernel takes 4096", goarch, n)
		}
	}
}
