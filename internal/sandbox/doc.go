// Package sandbox is an isolated place that runs commands. It knows no API, no user and no database: it is given a root
// folder, a workspace and limits, and answers with a Sandbox.
package sandbox
