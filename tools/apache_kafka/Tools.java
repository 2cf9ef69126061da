import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.LockSupport;

import org.apache.kafka.common.utils.Exit;

/**
 * Runs one command-line tool after the other in one JVM. A request on stdin is a count and so many strings: the class, what the
 * tool reads from its own stdin, and its arguments. An answer on stdout is the exit code, the tool's stdout and its stderr.
 */
public class Tools {
    /** Scala keeps the first System.out that it sees: one stream for ever, with a buffer behind it that is emptied. */
    static class Switched extends OutputStream {
        final ByteArrayOutputStream told = new ByteArrayOutputStream();

        @Override
        public synchronized void write(int value) {
            told.write(value);
        }

        @Override
        public synchronized void write(byte[] data, int start, int count) {
            told.write(data, start, count);
        }

        synchronized byte[] take() {
            byte[] all = told.toByteArray();
            told.reset();
            return all;
        }
    }

    public static void main(String[] ignored) throws Exception {
        DataInputStream requests = new DataInputStream(System.in);
        DataOutputStream answers = new DataOutputStream(System.out);
        Switched out = new Switched();
        Switched err = new Switched();
        System.setOut(new PrintStream(out, true));
        System.setErr(new PrintStream(err, true));
        while (true) {
            String[] words;
            try {
                words = new String[requests.readInt()];
            } catch (EOFException end) {
                Runtime.getRuntime().halt(0);
                return;
            }
            for (int i = 0; i < words.length; i++) {
                byte[] text = new byte[requests.readInt()];
                requests.readFully(text);
                words[i] = new String(text, StandardCharsets.UTF_8);
            }
            int code = run(words);
            System.out.flush();
            System.err.flush();
            answers.writeInt(code);
            for (byte[] told : new byte[][] {out.take(), err.take()}) {
                answers.writeInt(told.length);
                answers.write(told);
            }
            answers.flush();
        }
    }

    /** In a thread of its own: where a tool asks to exit, its thread stops for ever, as nothing behind that may run. */
    static int run(String[] words) throws Exception {
        String[] args = new String[words.length - 2];
        System.arraycopy(words, 2, args, 0, args.length);
        System.setIn(new ByteArrayInputStream(words[1].getBytes(StandardCharsets.UTF_8)));
        CompletableFuture<Integer> code = new CompletableFuture<>();
        Exit.setExitProcedure((status, message) -> {
            code.complete(status);
            while (true) {
                LockSupport.park();
            }
        });
        Thread tool = new Thread(() -> code.complete(runMain(words[0], args)), words[0]);
        tool.setDaemon(true);
        tool.start();
        return code.get();
    }

    static int runMain(String name, String[] args) {
        try {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) args);
            return 0;
        } catch (InvocationTargetException thrown) {
            thrown.getCause().printStackTrace();
            return 1;
        } catch (ReflectiveOperationException mistake) {
            mistake.printStackTrace();
            return 1;
        }
    }
}
