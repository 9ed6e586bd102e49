package e2e

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
)

// curlOutput runs curl against the server with only a key, the way the README shows it.
func curlOutput(t *testing.T, args ...string) []byte {
	t.Helper()
	args = append([]string{"-sS", "--max-time", "100", "-H", "x-api-key: " + server.key}, args...)
	out, err := exec.CommandContext(t.Context(), "curl", args...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestCurlWithOnlyAKey(t *testing.T) {
	t.Parallel()
	body, err := json.Marshal(map[string]any{
		"model": "script", "max_tokens": 1024,
		"tools":    []any{map[string]any{"type": "code_execution_20250825", "name": "code_execution"}},
		"messages": []any{map[string]any{"role": "user", "content": fence("bash", "echo from curl")}},
	})
	if err != nil {
		t.Fatal(err)
	}
	out := curlOutput(t, "-H", "content-type: application/json", "-d", string(body), server.url+"/v1/messages")
	if !strings.Contains(string(out), `from curl\n`) {
		t.Errorf("answer: %s", out)
	}
	var file struct {
		ID   string `json:"id"`
		Size int64  `json:"size_bytes"`
	}
	out = curlOutput(t, "-F", "file=@curl_test.go;type=text/plain", server.url+"/v1/files")
	if err := json.Unmarshal(out, &file); err != nil || file.Size == 0 {
		t.Fatalf("upload: %s", out)
	}
	out = curlOutput(t, "-X", "DELETE", server.url+"/v1/files/"+file.ID)
	if !strings.Contains(string(out), `"file_deleted"`) {
		t.Errorf("delete: %s", out)
	}
}
