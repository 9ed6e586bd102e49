package server

import "runtime"

// Version says which build this is.
type Version struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Date    string `json:"date"`
	Go      string `json:"go"`
}

// NewVersion fills what the build did not say.
func NewVersion(version, commit, date string) Version {
	v := Version{Version: version, Commit: commit, Date: date, Go: runtime.Version()}
	if v.Version == "" {
		v.Version = "devel"
	}
	if v.Commit == "" {
		v.Commit = "unknown"
	}
	if v.Date == "" {
		v.Date = "unknown"
	}
	return v
}
