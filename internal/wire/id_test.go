package wire_test

import (
	"strings"
	"testing"

	"github.com/airlock-sandbox/airlock/internal/wire"
)

func TestCutSplitsNoCharacter(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text string
		most int
		want string
	}{
		{"abc", 3, "abc"}, {"abc", 2, "ab"}, {"aé", 2, "a"}, {"aé", 3, "aé"}, {"用户", 5, "用"}, {"用", 2, ""}, {"", 0, ""}, {"a", 0, ""},
	} {
		if got := wire.Cut(tt.text, tt.most); got != tt.want {
			t.Errorf("%q to %d: %q, want %q", tt.text, tt.most, got, tt.want)
		}
	}
}

func TestClipSaysThatThereWasMore(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"abc": "abc", "abcd": "abc...", "abé": "ab...", "": ""} {
		if got := wire.Clip(text, 3); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestPlainID(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"a": true, "aZ09_-": true, strings.Repeat("a", 8): true, "": false, strings.Repeat("a", 9): false, "a b": false, "a/b": false, "é": false, ".": false, "a\x00": false,
	} {
		if got := wire.PlainID(text, 8); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}
