package main

import "github.com/spf13/cobra"

// commands lists every command of the binary, in the order of the help.
func commands() []*cobra.Command {
	return []*cobra.Command{
		newServeCommand(),
		newDemoCommand(),
		newAskCommand(),
		newAppCommand(),
		newKeyCommand(),
		newTokenCommand(),
		newUserCommand(),
		newLimitCommand(),
		newIssuerCommand(),
		newAuditCommand(),
		newFileCommand(),
		newContainerCommand(),
		newRootfsCommand(),
		newDoctorCommand(),
		newVersionCommand(),
	}
}
