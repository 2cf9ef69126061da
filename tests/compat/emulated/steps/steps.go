// Package steps prints a line for each step of a client's day, PASS or FAIL with the reason, and gives the exit code.
package steps

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Count is the number of records that a step produces.
const Count = 10

var failed = false

// Must returns the value, or ends the step with the error.
func Must[T any](value T, err error) T {
	Done(err)
	return value
}

// Done ends the step if there is an error.
func Done(err error) {
	if err != nil {
		panic(err)
	}
}

// Equal ends the step if the two print differently.
func Equal(found, wanted any) {
	if there, here := fmt.Sprint(found), fmt.Sprint(wanted); there != here {
		panic(fmt.Errorf("%s is not %s", there, here))
	}
}

// Step runs work, and prints what became of it.
func Step(name string, work func()) {
	defer func() {
		if reason := recover(); reason != nil {
			failed = true
			fmt.Printf("FAIL %s: %v\n", name, reason)
		}
	}()
	work()
	fmt.Printf("PASS %s\n", name)
}

// Values returns the values of Count records, which name their step.
func Values(of string) []string {
	made := make([]string, Count)
	for number := range made {
		made[number] = fmt.Sprintf("%s-%d", of, number)
	}
	return made
}

// Has returns true if a release and what is later has something, and both the setting and the node's release are as late.
func Has(since string) bool {
	return !older(os.Args[2], since) && !older(os.Args[3], since)
}

func older(one, than string) bool {
	for number, text := range strings.Split(one, ".") {
		a, _ := strconv.Atoi(text)
		b, _ := strconv.Atoi(append(strings.Split(than, "."), "0", "0")[number])
		if a != b {
			return a < b
		}
	}
	return false
}

// Exit ends the program: with 1 if a step failed.
func Exit() {
	if failed {
		os.Exit(1)
	}
}
