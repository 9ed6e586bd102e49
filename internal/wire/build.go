package wire

import "runtime"

// Build says which build of the program this is; /version answers it, and `airlock version --json`.
type Build struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Date    string `json:"date"`
	Go      string `json:"go"`
}

// NewBuild fills what the linker was not told.
func NewBuild(version, commit, date string) Build {
	b := Build{Version: version, Commit: commit, Date: date, Go: runtime.Version()}
	if b.Version == "" {
		b.Version = "devel"
	}
	if b.Commit == "" {
		b.Commit = "unknown"
	}
	if b.Date == "" {
		b.Date = "unknown"
	}
	return b
}
