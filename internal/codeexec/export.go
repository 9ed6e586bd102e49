package codeexec

import (
	"errors"
	"fmt"

	"github.com/airlock-sandbox/airlock/internal/wire"
)

// exportError says what a failed export means for the call. The container
// leaves single files out with a note; an error is about all of them.
func exportError(err error) error {
	var we *wire.Error
	if errors.As(err, &we) && we.Type == wire.TypeTooLarge {
		return &ToolError{Code: CodeFileTooLarge, Message: "An output file is too large.", Err: err}
	}
	return fmt.Errorf("export output files: %w", err)
}
