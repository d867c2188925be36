// Runs templates through the original. Standard input: one JSON object a line, with `template` and
// `messages`, how often the same generator writes it. Standard output: a line for each, with
// `outputs`, or `error` when the original throws.
var input = new java.io.InputStreamReader(java.lang.System["in"], "UTF-8");
var lines = new java.io.BufferedReader(input);
var written = new java.io.PrintStream(java.lang.System.out, true, "UTF-8");
var Original = Packages.com.github.vincentrussell.json.datagenerator.impl.JsonDataGeneratorImpl;
var text = java.nio.charset.StandardCharsets.UTF_8;
java.lang.System.setProperty("millstream.three", "3");
var line;
while ((line = lines.readLine()) !== null) {
  var job = JSON.parse(String(line));
  var answer = { outputs: [] };
  try {
    var generator = new Original();
    for (var message = 0; message < job.messages; message++) {
      var bytes = new java.io.ByteArrayOutputStream();
      generator["generateTestDataJson(java.lang.String,java.io.OutputStream)"](job.template, bytes);
      answer.outputs.push(String(new java.lang.String(bytes.toByteArray(), text)));
    }
  } catch (thrown) {
    answer.error = String(thrown);
  }
  written.println(JSON.stringify(answer));
}
